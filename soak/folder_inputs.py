"""What is fuzzed of folders that commands make: graphs on disk, and the members of an ensemble.

Each target replaces one file of a folder that is whole, and opens it; or it makes such a folder out of a damaged file.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cache, partial
from pathlib import Path

import torch

import pairre
from pairre.evaluation import rank_both_sides
from pairre.graph import Graph, load_graph
from pairre.graph.stored.load import load_stored
from soak.side_inputs import Inputs

ENSEMBLE = Path(__file__).parents[1] / "tests" / "runs" / "format-3"
_MEMORY = 500_000_000  # of an ingest: the least that it accepts
_TRIPLES = b"Paris\tcapital_of\tFrance\nLyon\tin\tFrance\nFrance\tborders\tSpain\nSpain\tborders\tFrance\n"
_LINES = (
    b'<http://a> <http://b> <http://c> .\n_:x <http://b> "l"@en . # comment\n<a:a> <a:b> "1"^^<a:t> .\n\n',
    b"<http://a> <http://b\\u00e9> _:b1 .\r\n<http://a> <http://b> <http://a> .\n",
)
_FRAGMENTS = (
    *(
        b"\t",
        b"\n",
        b"\r",
        b",",
        b'"',
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b" ",
        b"x" * 3000,
        b"\n" * 300,
    ),
    *(b"<", b">", b"_:", b"\\u0041", b"\\uD800", b" .\n", b"^^", b"@", b"'", b"head\trelation\ttail\n"),
)
_VALUES = (
    *(b"9" * 5000, b"1e999", b"nan", b"-1", b"null", b"true", b"[" * 2000, b"[]", b"{}", b'"x"', b"\0" * 8),
    *(b"\xff" * 8, b"\x7f\xff", b"(3,)", b"'<i8'", b"'|O'", b"True", b"noisy-or", b"../", b'"'),
)


@cache
def _stored() -> Path:
    """Return a graph on disk, made once in this process."""
    folder = Path(tempfile.mkdtemp(prefix="pairre-soak-"))
    (folder / "triples.tsv").write_bytes(_TRIPLES * 1 + b"Nice\tin\tFrance\nNice\tborders\tMonaco\n")
    return pairre.ingest(folder / "triples.tsv", folder / "graph", memory=_MEMORY, split=(0.6, 0.2, 0.2))


def _use(graph: Graph) -> None:
    """Read what a graph on disk says, in every way."""
    for id in range(min(9, graph.num_entities)):
        graph.find_entity(graph.show_entity(id))
    for split in ("train", "valid", "test"):
        list(graph.names(graph.split(split)[:9]))
    for index in (graph.known, graph.known_train):
        for side in ("head", "tail"):
            index.side(side).count(graph.train)
    graph.split_of(graph.train[:9].long())


def _file_of_graph(name: str, data: bytes, folder: Path) -> None:
    """Open a graph on disk in which one file is replaced; its description knows the size, so that contents count."""
    path = folder / "stored"
    if not path.exists():
        shutil.copytree(_stored(), path)
    original = (path / name).read_bytes()
    if name.endswith(".npy"):
        data = data[: len(original)] + original[len(data) :]
    try:
        (path / name).write_bytes(data)
        _use(load_stored(path))
    finally:
        (path / name).write_bytes(original)


def _ingested(ending: str, data: bytes, folder: Path) -> None:
    """Put the triples of a file on disk, and load them; both readers must agree on what is in it."""
    file, out = folder / f"source{ending}", folder / "ingested"
    file.write_bytes(data)
    shutil.rmtree(out, ignore_errors=True)
    pairre.ingest(file, out, memory=_MEMORY, split=(1, 0, 0))
    graph, expected = load_graph(out), load_graph(file, split=(1, 0, 0))
    rows, others = (set(map(tuple, one.names(one.train))) for one in (graph, expected))
    if rows != others:
        raise AssertionError(f"ingest and load_graph differ: {sorted(rows ^ others)[:3]}")


def _member(name: str, data: bytes, folder: Path) -> None:
    """Open an ensemble in which one file is replaced, and rank with it."""
    path = folder / "ensemble"
    if not path.exists():
        shutil.copytree(ENSEMBLE, path)
    original = (path / name).read_bytes()
    try:
        (path / name).write_bytes(data)
        run = pairre.load_run(path, torch.device("cpu").type, verify=False)
        rank_both_sides(run.model, run.graph.test[:2], run.graph.known)
    finally:
        (path / name).write_bytes(original)


def folder_inputs() -> Inputs:
    """Return all of them by name."""
    names = sorted(file.name for file in _stored().iterdir() if file.suffix in (".npy", ".json"))
    found: Inputs = {
        f"stored/{name}": (partial(_file_of_graph, name), ((_stored() / name).read_bytes(),), _VALUES) for name in names
    }
    for ending, seeds in ((".tsv", (_TRIPLES,)), (".csv", (_TRIPLES.replace(b"\t", b","),)), (".nt", _LINES)):
        found[f"ingest{ending}"] = partial(_ingested, ending), seeds, _FRAGMENTS
    for name in ("members/members.json", "members/0.toml", "members/1.toml", "members/rules.tsv", "calibration.json"):
        found[f"ensemble/{name}"] = partial(_member, name), ((ENSEMBLE / name).read_bytes(),), _VALUES
    return found
