"""What is fuzzed beside graphs, settings and runs: labels, types, queries, new triples, tables in memory, results.

Each is a function that reads, examples of what it reads, and fragments that are inserted into them, as in `targets.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save

from pairre.graph import Graph, Layout, load_graph
from pairre.graph.annotation_files import with_labels, with_types
from pairre.graph.extend import extend_graph, read_new_triples
from pairre.graph.formats import TripleFile
from pairre.graph.lookup import find_triples, read_names
from pairre.graph.sparql import _RESULTS, _read_results
from pairre.inference.search_state import SearchState
from pairre.inference.top_links import TopLinks
from pairre.rules import read_rules
from pairre.rules.apply import apply_rules
from pairre.runs.calibration import Calibration
from pairre.runs.init_vectors import InitVectors, read_init_vectors
from pairre.runs.run import Run, build_model
from pairre.settings import Recipe
from pairre.support.tensors import write_tensors

Inputs = dict[str, tuple[Callable[[bytes, Path], None], tuple[bytes, ...], tuple[bytes, ...]]]


@cache
def _graph() -> Graph:
    """Return a graph whose names are those of the examples."""
    rows = [("Paris", "capital_of", "France"), ("Lyon", "in", "France"), ("France", "borders", "Spain")]
    return load_graph({"train": rows, "valid": rows[:1], "test": rows[1:2]})


# --- labels, types, queries, new triples ------------------------------------------------------------------------------


def _labels(ending: str, data: bytes, folder: Path) -> None:
    """Read a file of labels, and the same as a file of types."""
    file = folder / f"labels{ending}"
    file.write_bytes(data)
    graph = with_labels(_graph(), file)
    for id in range(graph.num_entities):
        graph.show_entity(id)
    with_types(graph, file)


def _queries(ending: str, data: bytes, folder: Path) -> None:
    """Read rows with open members; the first byte chooses columns and header."""
    options = data[0] if data else 0
    file = folder / f"queries{ending}"
    file.write_bytes(data[1:])
    layout = Layout(("1", "2", "3") if options & 1 else None, (None, True, False)[options // 2 % 3], None)
    find_triples(_graph(), file, layout, skip_unknown=bool(options & 8), open_members=bool(options & 16))


def _candidates(ending: str, data: bytes, folder: Path) -> None:
    """Read names, one a line or in a column; every one is looked up."""
    file = folder / f"names{ending}"
    file.write_bytes(data[1:])
    for name in read_names(file, "name" if data[:1] and data[0] & 1 else None)[:100]:
        _graph().find_entity(name)


def _new_triples(data: bytes, folder: Path) -> None:
    """Add the triples of a file to a graph."""
    file = folder / "new.tsv"
    file.write_bytes(data)
    extend_graph(_graph(), *read_new_triples(file, Layout()))


def _weights(data: bytes, folder: Path) -> None:
    """Read triples with a column of weights."""
    file = folder / "weighted.csv"
    file.write_bytes(data)
    load_graph(file, weights="4", header=False, split=(1, 0, 0))


def _terms(ending: str, data: bytes, folder: Path) -> None:
    """Read RDF with blank nodes, labels and types; the first byte chooses what is kept."""
    options = data[0] if data else 0
    file = folder / f"terms{ending}"
    file.write_bytes(data[1:])
    chosen = {"only": ["http://e/p"]} if options & 2 else {"exclude": ["http://e/p"]} if options & 4 else {}
    graph = load_graph(file, keep_blank=bool(options & 1), language=("en", "de", "", "*")[options // 8 % 4], **chosen)
    for id in range(min(9, graph.num_entities)):
        graph.show_entity(id)


def _results(media_type: str, data: bytes, folder: Path) -> None:
    """Read what an endpoint answers."""
    file = folder / "answer"
    file.write_bytes(data)
    _read_results(TripleFile(file, Layout()), *_RESULTS[media_type])


# --- objects in memory ------------------------------------------------------------------------------------------------


def _frame(data: bytes, _folder: Path) -> None:
    """Load a table of pandas, Polars or pyarrow; the first byte chooses which, and the types of its columns."""
    options = data[0] if data else 0
    rows = [line.split(",") for line in data[1:].decode("utf-8", "surrogateescape").split("\n")[:50]]
    width = max(map(len, rows), default=0)
    if not 0 < width <= 50:
        return
    columns = list(zip(*([*row, *[None] * (width - len(row))] for row in rows[1:]), strict=True)) or [()] * width
    titles = [*rows[0], *(f"column {i}" for i in range(width - len(rows[0])))]
    columns = [_typed(column, options // 4 + i) for i, column in enumerate(columns)]
    try:
        arrays = [pa.array(column) for column in columns]
        frame = pa.table(arrays, names=titles)
        made = (lambda: frame, frame.to_pandas, lambda: pl.from_arrow(frame), lambda: pl.from_arrow(frame).lazy())
        source = made[options % 4]()
    except (pa.ArrowException, pl.exceptions.PolarsError, UnicodeError, ValueError, TypeError, OverflowError):
        return  # no such table can be made
    load_graph(source, weights="none" if options & 64 else None)


def _typed(column: tuple[str | None, ...], kind: int) -> list[object]:
    """Return a column with some of its values as numbers, dates, lists or nothing."""
    made: tuple[Callable[[str], object], ...] = (str, len, lambda v: len(v) / 3, lambda v: [v], lambda v: v > "m")
    made = (*made, lambda v: {"a": v}, lambda v: v.encode("utf-8", "replace"), lambda v: pd.Timestamp(len(v), unit="D"))
    return [None if value is None or value == "null" else made[kind % 11 % 8](value) for value in column]


def _array(data: bytes, _folder: Path) -> None:
    """Load an array; the first two bytes choose its type, its shape, whether it is a tensor, and weights."""
    kind, shape = (*data[:2], 0, 0)[:2]
    types = ("<i8", "<i4", "<u8", "u1", "<f4", "<f8", "<U2", "S3", "?", "<c8", "<M8[D]", "<f2")
    dtype = np.dtype(types[kind % len(types)])
    content = data[2 : 2 + (len(data) - 2) // dtype.itemsize * dtype.itemsize] if len(data) > 2 else b""
    array = np.frombuffer(content, dtype)
    width = (3, 4, 2, 1, 5)[shape % 5]
    array = array[: len(array) // width * width].reshape(-1, width) if shape & 64 == 0 else array
    try:
        source = torch.from_numpy(array.copy()) if shape & 32 else array.astype(object) if shape & 128 else array
        source.tolist()
    except (TypeError, ValueError, SystemError):
        return  # no such array can be made
    load_graph(source, weights=array[..., 0] if shape & 8 and array.size else None)


# --- vectors, rules, searches, probabilities --------------------------------------------------------------------------


def _vectors(data: bytes, folder: Path) -> None:
    """Read initial vectors from a Parquet file."""
    file = folder / "vectors.parquet"
    file.write_bytes(data)
    read_init_vectors(file, _graph()).copy_into(_run().model)


def _stored_vectors(data: bytes, folder: Path) -> None:
    """Read the initial vectors of a run folder."""
    file = folder / "init-vectors.safetensors"
    file.write_bytes(data)
    InitVectors.load(file).copy_into(_run().model)


@cache
def _run() -> Run:
    recipe = Recipe()
    return Run(_graph(), recipe, build_model(_graph(), recipe, torch.device("cpu")))


def _applied(data: bytes, folder: Path) -> None:
    """Apply the rules of a file."""
    file = folder / "rules.tsv"
    file.write_bytes(data)
    apply_rules(_graph(), read_rules(file), k=9, combine="noisy-or" if len(data) % 2 else "max")


def _state(data: bytes, folder: Path) -> None:
    """Read the state of a search: a damaged file, or one that is whole and says something else."""
    file = folder / "state.safetensors"
    if data[:1] == b"{":
        tables = {"keys": torch.zeros(2).double(), "scores": torch.zeros(2), "triples": torch.zeros(2, 3).long()}
        write_tensors(file, tables, {"search": "x", "state": data.decode("utf-8", "replace")})
    else:
        file.write_bytes(data)
    SearchState("x", TopLinks.empty(5, 0.0, torch.device("cpu"))).read(file)


def _calibration(data: bytes, _folder: Path) -> None:
    """Use the values of a calibration, as `run/calibration.json` has them without their checksum."""
    try:
        values = json.loads(data)
        if not isinstance(values, dict):
            return
        calibration = Calibration.from_values(values, _graph().num_entities, _graph().num_relations)
    except (ValueError, RecursionError):  # a run folder says so in one line
        return
    calibration.probability(torch.zeros(3), torch.arange(3))


# --- all of them ------------------------------------------------------------------------------------------------------

_PAIRS = (b"name\tlabel\nParis\tCity of Light\nin\tis in\nFrance\tR\xc3\xa9publique\n", b"Paris,city\nFrance,country\n")
_ROWS = b"head\trelation\ttail\nParis\tcapital_of\t\n\tin\tFrance\nLyon\t\tFrance\n"
_NEW = b"Nice\tin\tFrance\nNice\tborders\tSpain\nParis\tcapital_of\tFrance\n"
_NUMBERS = (
    b"9" * 5000,
    b"1e999",
    b"nan",
    b"-1",
    b"inf",
    b"true",
    b"null",
    b"[" * 2000,
    b"[]",
    b"{}",
    b'"x"',
    b"1e-320",
)
_TEXT = (
    *(
        b"\t",
        b"\n",
        b"\r",
        b",",
        b";",
        b'"',
        b'""',
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b" ",
        b"x" * 3000,
    ),
    *(b"name", b"Paris", b"France", b"capital_of", b"\xe2\x80\xae", b"\x1b[2J", b"[/b]", b"\t\t\t", b"\n" * 300),
)
_MARKS = (*_TEXT, *_NUMBERS, b"<", b">", b"{", b"}", b'"uri"', b'"bnode"', b'"literal"', b'"triple"', b'"value"', b"_:")
_TERMS = (
    b"\1@prefix e: <http://e/> . @prefix s: <http://www.w3.org/2004/02/skos/core#> .\n_:x e:p [ e:q ( e:a e:b ) ] ."
    b'\ne:a s:prefLabel "x"@de , "y"@en-GB , "z" ; a e:T ; e:p e:b .\n'
)
_SOLUTIONS = {
    "application/sparql-results+json": b'{"head":{"vars":["s","p","o"]},"results":{"bindings":[{"s":{"type":"uri",'
    b'"value":"http://a"},"p":{"type":"uri","value":"http://b"},"o":{"type":"bnode","value":"c"}}]}}',
    "application/sparql-results+xml": b'<?xml version="1.0"?><sparql xmlns="http://www.w3.org/2005/sparql-results#"><he'
    b'ad><variable name="s"/><variable name="p"/><variable name="o"/></head><results><result><binding name="s"><uri>'
    b'http://a</uri></binding><binding name="p"><uri>http://b</uri></binding><binding name="o"><literal xml:lang="en">c'
    b"</literal></binding></result></results></sparql>",
    "text/tab-separated-values": b'?s\t?p\t?o\n<http://a>\t<http://b>\t<http://c>\n_:x\t<http://b>\t"l"@en\n',
}
_RULES = (
    b"body\thead\tkind\tconfidence\nin\tcapital_of\tsubrelation\t0.9\n"
    b'["in", "borders"]\tin\tcomposition\t1.0\nborders\tborders\tsymmetry\t0.5\nin\tcapital_of\tequivalence\t0.7\n',
)


def _parquet(table: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="none")
    return bytes(buffer.getvalue().to_pybytes())


def inputs() -> Inputs:
    """Return all of them by name."""
    found: Inputs = {f"labels{e}": (partial(_labels, e), _PAIRS, _TEXT) for e in (".tsv", ".csv", ".txt")}
    open_rows = tuple(option + _ROWS for option in (b"\0", b"\x10", b"\x19", b"\x1a"))
    names = (b"\0Paris\nFrance\n", b"\1name,kind\nParis,city\n")
    for ending in (".tsv", ".csv"):
        found[f"queries{ending}"] = partial(_queries, ending), open_rows, _TEXT
        found[f"candidates{ending}"] = partial(_candidates, ending), names, _TEXT
    ids = {name: ["Paris", "in", "France"] for name in ("head", "relation", "tail")}
    found["queries.parquet"] = partial(_queries, ".parquet"), (b"\x10" + _parquet(pa.table(ids)),), (b"\0" * 8, b"PAR1")
    found["candidates.parquet"] = (
        partial(_candidates, ".parquet"),
        (b"\0" + _parquet(pa.table({"name": ["Paris"]})),),
        (b"\0" * 8, b"PAR1"),
    )
    found["new-triples"] = _new_triples, (_NEW,), _TEXT
    found["weights"] = _weights, (b"a,r,b,1\nb,r,c,0.5\nc,s,a,2e3\n",), (*_TEXT, *_NUMBERS)
    found["terms.ttl"] = partial(_terms, ".ttl"), (_TERMS, b"\x0c" + _TERMS[1:]), _MARKS
    for media_type, seed in _SOLUTIONS.items():
        found[f"results.{media_type.rpartition('+')[2].rpartition('/')[2]}"] = (
            partial(_results, media_type),
            (seed,),
            _MARKS,
        )
    table = b"head,relation,tail,weight\na,r,b,1\nnull,r,c,2\nd,s,e,3\n"
    found["frame"] = _frame, tuple(bytes([option]) + table for option in (0, 1, 2, 3, 6, 10, 65)), _TEXT
    numbers = np.arange(24).astype("<i8").tobytes()
    found["array"] = (
        _array,
        (b"\0\0" + numbers, b"\5\x28" + numbers, b"\6\x80" + "ab".encode("utf-32-le") * 9),
        _NUMBERS,
    )
    vectors = pa.table({"name": ["Paris", "Spain"], "vector": [[0.5] * _run().model.entity.shape[1]] * 2})
    found["vectors.parquet"] = _vectors, (_parquet(vectors),), (b"\0" * 8, b"\xff" * 8, b"PAR1")
    stored = {"ids": torch.tensor([0]), "vectors": torch.zeros(1, 4), "frozen": torch.tensor(False)}
    found["vectors.safetensors"] = _stored_vectors, (save(stored),), (*_NUMBERS, b'"', b"{")
    found["rules-applied"] = _applied, _RULES, (*_TEXT, *_NUMBERS, b"composition", b"inverse", b"equivalence")
    state = b'{"position": [1, 2, 3], "sizes": [1], "floor": "0.5"}'
    found["search-state"] = _state, (state, save({"keys": torch.zeros(2)}, {"search": "x"})), (*_NUMBERS, b'"', b"{")
    values = b'{"slope": 1, "intercept": 0, "base_rate": 0.1, "num_true": 3, "num_false": 9, "offsets": [0, 1, 2], '
    found["calibration"] = (
        _calibration,
        (values + b'"points": [[-1, -2], [1, 2]]}', values + b'"points": []}'),
        _NUMBERS,
    )
    return found
