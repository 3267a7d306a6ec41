"""The shape of the code: imports run one way, and the README's tree is the tree."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pairre"
# A module may import from its own layer and the layers below it.
LAYERS = [
    {"errors", "files", "randomness", "device", "threads"},
    {"graph"},
    {"recipe", "rules"},
    {"ops"},
    {"models", "losses", "sampling", "optim", "average", "ruled"},
    {"runs", "display"},
    {"evaluate", "merge", "predict"},
    {"patterns"},
    {"report"},
    {"trainer"},
    {"train"},
    {"tune", "reproduce"},
    {"tables"},
    {"cli_options"},
    {"cli_report", "cli_reproduce", "cli_tune"},
    {"cli", "__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def top(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_run_one_way(path):
    mine = LEVEL[top(path)]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "pairre":
            imported = {alias.name for alias in node.names} - {"__version__"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pairre."):
            imported = {node.module.split(".")[1]}
        elif isinstance(node, ast.Import):
            imported = {a.name.split(".")[1] for a in node.names if a.name.startswith("pairre.")}
        else:
            continue
        for name in imported:
            assert LEVEL[name] <= mine, f"{path.name} imports {name} from a layer above"


def test_the_tree_in_the_readme_is_the_tree():
    tree = re.search(r"```text\n(src/pairre/.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S).group(1)
    named = set()
    folders = {0: SOURCE}
    for line in tree.splitlines()[1:]:
        indent, name = len(line) - len(line.lstrip()), line.split()[0]
        depth = indent // 2 - 1
        path = folders[depth] / name
        folders[depth + 1] = path
        assert path.exists(), f"{name} is in the README but not in the tree"
        named.add(path)
    missing = [p for p in MODULES if p not in named and p.name not in ("__init__.py", "__main__.py")]
    assert missing == []


def test_files_stay_short():
    long = {p.name: n for p in MODULES if (n := len(p.read_text(encoding="utf-8").splitlines())) > 410}
    assert long == {}


def test_light_core():
    """Optional packages are imported inside the function that needs them."""
    heavy = {"pyoxigraph", "matplotlib", "tensorboard", "ogb", "optuna", "fastapi", "pykeen", "pandas", "sklearn"}
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                assert not {a.name.split(".")[0] for a in node.names} & heavy
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in heavy
