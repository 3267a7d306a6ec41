"""What the package never does: run code that comes with data, start a shell, or use the network beside downloads."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "pairre"
MODULES = sorted(SOURCE.rglob("*.py"))
# Modules that may not be imported, with the files that may. `docs/security.md` says why.
MODULES_FORBIDDEN = {
    "pickle": {"graph/benchmarks/ogb.py"},  # an unpickler that knows arrays and nothing else
    **dict.fromkeys(("cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "telnetlib"), ()),
    **dict.fromkeys(
        ("urllib.request", "urllib.error", "http.client"), ("graph/benchmarks/download.py", "graph/sparql.py")
    ),
    **dict.fromkeys(("requests", "httpx", "httpx2", "aiohttp", "socketserver", "ftplib", "smtplib"), ()),
    "socket": ("serve/http/server.py", "serve/process.py", "serve/worker.py"),  # of `pairre serve`, and its scorers
    **dict.fromkeys(("xml.etree", "xml.dom", "xml.sax", "lxml"), ()),  # which expand entities; expat is checked
    "subprocess": {"serve/process.py", "support/launch.py"},  # start this interpreter, without a shell
    **dict.fromkeys(("pty", "multiprocessing"), ()),
    "ctypes": {"kernels/cuda/native.py", "support/processes.py"},
}
CALLS_FORBIDDEN = {  # a name that begins with a dot is a method of anything
    **dict.fromkeys(("eval", "exec", "compile", "__import__", "input", "breakpoint"), ()),
    **dict.fromkeys(("os.system", "os.popen", "os.execv", "os.spawnl", "tempfile.mktemp", "yaml.load"), ()),
    **dict.fromkeys(("pickle.load", "pickle.loads", "numpy.load", "np.load", "pd.read_pickle"), ()),
    **dict.fromkeys((".extractall", ".extract", "shutil.unpack_archive"), ()),
    ".exec_module": {"support/plugins.py"},  # the plug-ins that a user names on the command line
}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def imported(tree: ast.AST) -> set[str]:
    """Return the full names of all imported modules and their parents."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    return [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_uses_nothing_that_runs_foreign_code(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for name in imported(tree):
        for forbidden, allowed in MODULES_FORBIDDEN.items():
            if name == forbidden or name.startswith(f"{forbidden}."):
                assert name_of(path) in allowed, f"imports {name}"
    for name, node in calls(tree):
        for forbidden in {name, f".{name.rpartition('.')[2]}"} & CALLS_FORBIDDEN.keys():
            assert name_of(path) in CALLS_FORBIDDEN[forbidden], f"line {node.lineno}: {name}"
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        assert "shell" not in keywords, f"line {node.lineno}: {name}(shell=…)"
        if name == "torch.load":
            restricted = ast.unparse(keywords.get("pickle_module", ast.Constant(None))).startswith("_ARRAY_PICKLE[")
            safe = isinstance(keywords.get("weights_only"), ast.Constant) and keywords["weights_only"].value is True
            assert safe or restricted, f"line {node.lineno}: torch.load without weights_only"


def test_the_unpickler_of_arrays_knows_nothing_that_runs_code():
    from pairre.graph.benchmarks.ogb import _ALLOWED

    assert {name for _, name in _ALLOWED} == {"_reconstruct", "ndarray", "dtype", "encode"}


def test_the_page_about_security_exists_and_is_linked():
    docs = SOURCE.parents[1] / "docs"
    assert "(security.md)" in (docs / "index.md").read_text(encoding="utf-8")
    assert (docs / "security.md").is_file()
