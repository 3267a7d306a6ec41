"""The shape of the code: imports go one way, files and functions stay short, and the documented tree is the tree."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pairre"
# A folder may import from itself and from the folders before it.
FOLDERS = [
    *("support", "graph", "rules", "kernels", "models", "settings", "tables", "runs", "evaluation", "training"),
    *("inference", "analysis", "studies", "serve", "cli"),
]
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE)
MAX_LINES, MAX_FUNCTION_LINES = 400, 50
# Optional packages, which only the function that needs them may import.
OPTIONAL = {
    *("pyoxigraph", "matplotlib", "tensorboard", "ogb", "optuna", "pykeen", "pandas", "sklearn", "triton", "duckdb"),
    *("fastapi", "starlette", "uvicorn", "pydantic", "prometheus_client", "mcp"),
}
# Modules that are loaded only where their optional packages are wanted: by a CUDA device, or by the command `serve`.
WITH_OPTIONAL = ("kernels/cuda/", "serve/http/", "serve/mcp/")


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def imported(tree: ast.AST) -> set[str]:
    """Return the folders of the package that a module imports from, wherever in the module."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "pairre":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pairre."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("pairre.")}
    return names & set(FOLDERS)


def test_every_folder_has_its_place():
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(FOLDERS)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_one_way(path):
    own = FOLDERS.index(path.relative_to(SOURCE).parts[0])
    above = {name for name in imported(ast.parse(path.read_text(encoding="utf-8"))) if FOLDERS.index(name) > own}
    assert not above, f"{name_of(path)} imports from {above}, which stand above it"


def test_every_folder_says_what_is_decided_there():
    for folder in FOLDERS:
        text = ast.get_docstring(ast.parse((SOURCE / folder / "__init__.py").read_text(encoding="utf-8"))) or ""
        assert len(re.findall(r"[.:]\s|[.]$", text)) >= 2, f"{folder}/__init__.py needs two sentences"


def test_files_and_functions_stay_short():
    long = {}
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        if (lines := len(text.splitlines())) > MAX_LINES:
            long[name_of(path)] = lines
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # Without the signature and the docstring, which for a command are most of it.
                body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
                if (lines := node.end_lineno - body[0].lineno + 1) > MAX_FUNCTION_LINES:
                    long[f"{name_of(path)}: {node.name}"] = lines
    assert long == {}


def test_only_owners_of_storage_know_that_a_table_is_a_tensor():
    """Everything else gets rows from `Model.entities`, `relations` and `stored`; see decision 13."""
    for path in MODULES:
        if path.relative_to(SOURCE).parts[0] in ("models", "tables", "runs"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ("entity", "relation"):
                owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
                assert owner != "model", f"{name_of(path)}:{node.lineno}: {owner}.{node.attr} is a whole table"


def test_tests_mirror_the_source():
    """A test is in the folder of what it tests: of the package, or of the project, such as benchmarks/."""
    tests = ROOT / "tests"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")} - {Path()}
    known = {folder for folder in folders if (SOURCE / folder).is_dir() or (ROOT / folder).is_dir()}
    assert folders - known == {Path("fuzz")}  # inputs that broke a reader once, of all of them
    assert {Path(folder) for folder in FOLDERS} <= folders


def test_the_core_imports_no_optional_package():
    for path in MODULES:
        if path.relative_to(SOURCE).as_posix().startswith(WITH_OPTIONAL):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                assert not {alias.name.split(".")[0] for alias in node.names} & OPTIONAL, name_of(path)
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in OPTIONAL, name_of(path)


def test_the_documented_tree_is_the_tree():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = re.search(r"```text\n(src/pairre/.*?)```", page, re.S).group(1)
    named, folders = set(), {0: SOURCE}
    for line in tree.splitlines()[1:]:
        depth, name = (len(line) - len(line.lstrip())) // 2 - 1, line.split()[0]
        folders[depth + 1] = path = folders[depth] / name
        assert path.exists(), f"docs/architecture.md names {name}, which does not exist"
        named.add(path)
    assert [name_of(path) for path in MODULES if path not in named and path.name != "__init__.py"] == []


def test_only_one_module_writes_to_a_terminal():
    """Names from outside would else be read as markup, or their control characters reach the terminal."""
    for path in MODULES:
        if path == SOURCE / "support" / "terminal.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {module.split(".")[0] for module in modules} & {"rich", "click"}, (
                f"{name_of(path)} imports {modules}; pairre.support.terminal shows text from outside as text"
            )
            called = node.func if isinstance(node, ast.Call) else None
            assert not (isinstance(called, ast.Name) and called.id == "print"), (
                f"{name_of(path)} prints: use `echo` or `echo_json` of pairre.cli.console"
            )
