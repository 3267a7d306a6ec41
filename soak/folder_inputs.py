"""What is fuzzed of folders that commands make: graphs on disk, ensembles, runs in several files, efforts.

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
from pairre.runs import RunFolder, build_model
from pairre.runs.folder import meaning_of
from pairre.runs.shard_files import write_shard
from pairre.studies.effort.candidates import Candidate
from pairre.studies.effort.journal import PLAN, Journal, Trial
from pairre.studies.effort.plan import EffortPlan, Round
from pairre.studies.effort.probe import Cost
from pairre.support.processes import Processes
from soak.side_inputs import Inputs

_RUNS = Path(__file__).parents[1] / "tests" / "runs"
ENSEMBLE, _PLAIN = _RUNS / "format-3", _RUNS / "format-2"
_SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
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


@cache
def _in_files() -> Path:
    """Return a run whose weights are in two files, made once in this process."""
    path = Path(tempfile.mkdtemp(prefix="pairre-soak-")) / "run"
    shutil.copytree(_PLAIN, path)
    model = pairre.load_run(path, "cpu").model
    weights, total = model.state_dict(), model.num_entities
    for number, (start, stop) in enumerate(((0, total // 2), (total // 2, total))):
        rows = {**weights, "entity": weights["entity"][start:stop]}
        write_shard(path, Processes(number, 2), rows, start, total, meaning_of(model))
    (path / "model.safetensors").unlink()
    return path


def _shard(name: str, data: bytes, folder: Path) -> None:
    """Open a run in several files one of which is replaced, and rank and answer with it; both ways to open it."""
    path = folder / "in-files"
    if not path.exists():
        shutil.copytree(_in_files(), path)
    original = (path / name).read_bytes()
    try:
        (path / name).write_bytes(data)
        run = pairre.load_run(path, "cpu", verify=False)
        rank_both_sides(run.model, run.graph.test[:2], run.graph.known)
        RunFolder(path).load_model(build_model(run.graph, run.recipe, run.model.device, False), verify=False)
    finally:
        (path / name).write_bytes(original)


@cache
def _effort() -> bytes:
    """Return the state of an effort with one trial."""
    plan = EffortPlan(
        *(
            "quick",
            "ring",
            "cpu",
            60.0,
            [Candidate("pairre 1", {"train.lr": 0.01})],
            {"pairre 1": Cost(0.1, 0.01, 0.1)},
        ),
        *({"transe 1": "too slow"}, [Round(1, 5.0, 10)], 1, 2, 20.0, 5.0, 100, 10, False),
    )
    folder = Path(tempfile.mkdtemp(prefix="pairre-soak-"))
    Journal(folder, plan, 0, [Trial("pairre 1", 1, 60, 1.5, 0.25)]).store()
    return (folder / PLAN).read_bytes()


def _journal(data: bytes, folder: Path) -> None:
    """Read the state of an effort, and print its plan."""
    (folder / PLAN).write_bytes(data)
    list(Journal.load(folder).plan.lines())


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
    for name in _SHARDS:
        found[f"in-files/{name}"] = partial(_shard, name), ((_in_files() / name).read_bytes(),), _VALUES
    found[f"effort/{PLAN}"] = _journal, (_effort(),), _VALUES
    return found
