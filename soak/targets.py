"""What is fuzzed: every function of the package that reads input, with small real examples to start from.

A target is called with bytes and a scratch folder. It may return or raise a PairREError; everything else is a finding.
The first byte of a case chooses options where a reader has some, so that one target covers all of them.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save

import pairre
from pairre.graph import Graph, Layout, Vocabulary, load_graph, read_triples
from pairre.graph.benchmarks.entry import Source, Splits
from pairre.graph.benchmarks.obtain import _lines as published_lines
from pairre.graph.benchmarks.obtain import _member as archive_member
from pairre.graph.benchmarks.obtain import _rows as published_rows
from pairre.graph.benchmarks.ogb import read_split
from pairre.rules import Rule, read_rules, write_rules
from pairre.runs import RunFolder
from pairre.settings import Recipe, load_recipe, override
from pairre.settings import keys as setting_keys
from pairre.studies.tune import load_space
from soak.folder_inputs import folder_inputs
from soak.server_inputs import server_inputs
from soak.side_inputs import inputs

ROOT = Path(__file__).parents[1]
RUN = ROOT / "tests" / "runs" / "format-1"
Check = Callable[[bytes, Path], None]


@dataclass(frozen=True)
class Target:
    """One reader: what is called, the examples that are mutated, and fragments that are inserted into them."""

    check: Check
    seeds: tuple[bytes, ...]
    fragments: tuple[bytes, ...] = ()


# --- graphs ---------------------------------------------------------------------------------------------------------

_COLUMNS = (None, ("1", "2", "3"), ("3", "1", "2"), ("head", "relation", "tail"), ("9" * 30, "2", "3"), ("a", "b", "c"))
_DELIMITERS = (None, "\t", ",", " ", "|", ";")


def _delimited(ending: str, data: bytes, folder: Path) -> None:
    """Load a text file as a graph; the first byte chooses columns, header and delimiter."""
    options = data[0] if data else 0
    file = folder / f"graph{ending}"
    file.write_bytes(data[1:])
    load_graph(
        file,
        columns=_COLUMNS[options % len(_COLUMNS)] if options & 128 else None,
        header=(None, True, False)[options // 8 % 3],
        delimiter=_DELIMITERS[options % len(_DELIMITERS)] if options & 64 else None,
    )


def _triples(ending: str, data: bytes, folder: Path) -> None:
    """Read the triples of a file."""
    file = folder / f"graph{ending}"
    file.write_bytes(data)
    read_triples(file, Layout())


def _compressed(ending: str, data: bytes, folder: Path) -> None:
    """Read a file whose compressed bytes are damaged, or, if the first byte is odd, whose contents are."""
    content = data[1:]
    if data[:1] and data[0] % 2:
        content = gzip.compress(content, 1) if ending.endswith("gz") else _zstd(content)
    _triples(ending, content, folder)


def _zstd(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data, asbytes=True) if data else b""


def _folder(data: bytes, folder: Path) -> None:
    """Load a folder of three splits, which the bytes are divided into."""
    splits = folder / "splits"
    splits.mkdir(exist_ok=True)
    for name, part in zip(("train", "valid", "test"), data.split(b"\0\0", 2), strict=False):
        (splits / f"{name}.tsv").write_bytes(part)
    load_graph(splits)


_LINES = b"Paris\tcapital_of\tFrance\nLyon\tin\tFrance\nFrance\tborders\tSpain\n\nSpain\tborders\tFrance\n"
_TABLES = (
    *(_LINES, b"head\trelation\ttail\n" + _LINES, _LINES.replace(b"\t", b","), _LINES.replace(b"\n", b"\r\n")),
    b'head,relation,tail\n"a ""b""",r,c\n"x\ny",r,z\n',
    "\ufeffÅngström\tär\té\n".encode(),
    b"1\t2\t3\t4\n5\t6\t7\t8\n",
)
_TEXT_FRAGMENTS = (
    *(b"\t", b"\n", b"\r", b"\r\n", b",", b'"', b'""', b"\0", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b" ", b";"),
    *(b"head\trelation\ttail\n", b"a\tb\tc\n", b"\t" * 300, b"\n" * 300, b"x" * 3000, b'"' * 99, b"|", b"\xc2\x85"),
)
_RDF_SEEDS = {
    ".nt": (
        b'<http://a> <http://b> <http://c> .\n_:x <http://b> "l"@en . # comment\n<a:a> <a:b> "1"^^<a:t> .\n',
        b"<http://a> <http://b> <<( <http://a> <http://b> <http://c> )>> .\n<http://a> <http://b> _:b1 .\n",
    ),
    ".nq": (b'<http://a> <http://b> <http://c> <http://g> .\n_:x <http://b> "l" _:g .\n',),
    ".ttl": (
        b'@prefix e: <http://e/> .\n@base <http://x/> .\ne:a e:b e:c , "x" ; a [ e:p ( 1 2.5 true <y> ) ] .\n',
        b"PREFIX : <http://e/>\n:a :b << :a :b :c >> .\n:a :b :c {| :d :e |} .\n<a> <b> '''l\\u00e9''' .\n",
    ),
    ".rdf": (
        b'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY e "http://e/">]><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22'
        b'-rdf-syntax-ns#" xmlns:e="http://e/" xml:base="http://x/"><rdf:Description rdf:about="&e;a"><e:p '
        b'rdf:resource="c"/><e:q rdf:parseType="Collection"><e:T rdf:ID="i"/></e:q><e:l xml:lang="en">x</e:l>'
        b'<e:x rdf:parseType="Literal"><b>y</b></e:x></rdf:Description></rdf:RDF>',
    ),
    ".jsonld": (
        b'{"@context":{"p":{"@id":"http://e/p","@type":"@id"},"@base":"http://x/"},"@id":"a","p":["b",{"@id":"c"}]}',
        b'[{"@id":"http://a","http://b":[{"@list":[{"@id":"http://c"},1,"x"]}]},{"@graph":[{"@id":"_:b","@type":"t"}]}]',
    ),
}
_RDF_FRAGMENTS = (
    *(b"<", b">", b"<<", b"<<(", b")>>", b'"', b'"""', b"[", b"]", b"(", b")", b"{", b"}", b"_:", b"@", b"^^", b" .\n"),
    *(b"\\u0041", b"\\uD800", b"\\", b"#", b"\0", b"\xff", b"\xed\xa0\x80", b"[" * 400, b"{" * 400, b"<<( " * 400),
    *(b"<a>" * 400, b"&e;", b"&#0;", b"]]>", b"<![CDATA[", b"<!--", b"rdf:nodeID", b'"@context"', b'"@id"', b"null"),
    *(b'"@reverse"', b'"@container"', b'"@import"', b"9" * 5000, b"1e999", b"PREFIX", b"BASE <", b"xmlns:a="),
)


@cache
def _parquet_seeds() -> tuple[bytes, ...]:
    plain = pa.table({"head": ["a", "b", "c"], "relation": ["r", "r", "s"], "tail": ["b", "c", "a"]})
    numbers = pa.table({"h": [1, 2], "r": [0, 0], "t": [2, 1]})
    encoded = plain.set_column(0, "head", plain["head"].dictionary_encode())
    options = ({"compression": "zstd"}, {"compression": "none", "use_dictionary": False}, {"compression": "snappy"})
    return tuple(_parquet(table, **option) for table in (plain, numbers, encoded) for option in options)


def _parquet(table: pa.Table, **options: object) -> bytes:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue().to_pybytes()


# --- downloads ---


def _archive(data: bytes, folder: Path) -> None:
    """Read the triples of a member of an archive."""
    file = folder / "archive"
    file.write_bytes(data)
    source = Source(archive="https://example.org/archive", parts=Splits("train.txt", "valid.txt", "test.txt"))
    for part in source.parts:
        with archive_member(file, source.archive, part) as lines:
            for _ in published_rows(published_lines(lines, part), source, part):
                pass


@cache
def _archive_seeds() -> tuple[bytes, ...]:
    tar, zipped = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:gz") as archive:
        for name in ("train.txt", "valid.txt", "test.txt"):
            member = tarfile.TarInfo(name)
            member.size = len(_PUBLISHED)
            archive.addfile(member, io.BytesIO(_PUBLISHED))
    with zipfile.ZipFile(zipped, "w") as archive:
        for name in ("train.txt", "valid.txt", "test.txt"):
            archive.writestr(zipfile.ZipInfo(name), _PUBLISHED)
    return tar.getvalue(), gzip.decompress(tar.getvalue()), zipped.getvalue()


def _ogb_split(data: bytes, folder: Path) -> None:
    """Read a split as OGB publishes it."""
    file = folder / "train.pt"
    file.write_bytes(data)
    read_split(file)


@cache
def _ogb_seeds() -> tuple[bytes, ...]:
    ids = np.arange(6)
    split = {"head": ids, "relation": ids, "tail": ids, "head_neg": ids.reshape(3, 2), "head_type": ["a", "b"]}
    seeds = []
    for new in (True, False):
        file = io.BytesIO()
        torch.save(split, file, _use_new_zipfile_serialization=new)
        seeds.append(file.getvalue())
    return tuple(seeds)


_PUBLISHED = b"a\tr\tb\nb\tr\tc\n"
_PICKLE_FRAGMENTS = (
    b"cos\nsystem\n",
    b"cbuiltins\neval\n",
    b"(",
    b"R",
    b"X\xff\xff\xff\x7f",
    b"\x8a\xff",
    b"b.",
    b"PK\x03\x04",
)


# --- settings and rules -----------------------------------------------------------------------------------------------


def _rules(data: bytes, folder: Path) -> None:
    """Read a file of rules, write what was read and read it again."""
    file = folder / "rules.tsv"
    file.write_bytes(data)
    rules = read_rules(file)
    write_rules(folder / "again.tsv", rules)
    if read_rules(folder / "again.tsv") != rules:
        raise AssertionError("rules that were written are not those that are read")


def _rule(data: bytes, _folder: Path) -> None:
    """Make a rule from text."""
    names = data.decode("utf-8", "surrogateescape").split("\t")
    Rule((names[0],), names[-1], "inverse", 0.5)


def _set(data: bytes, _folder: Path) -> None:
    """Apply `--set` options, one on each line."""
    override(Recipe(), data.decode("utf-8", "surrogateescape").split("\n"))


def _toml(load: Callable[[Path], object], data: bytes, folder: Path) -> None:
    """Load a TOML file."""
    file = folder / "settings.toml"
    file.write_bytes(data)
    load(file)


_RULES = (
    b"body\thead\tkind\tconfidence\tpca_confidence\tsupport\thead_coverage\n"
    b'a\tb\tsubrelation\t0.9\t0.95\t12\t0.5\n["a", "b"]\tc\tcomposition\t1.0\t\t\t\nr\tr\tsymmetry\t0.5\t\t3\t\n',
)
_NUMBERS = (
    b"9" * 5000,
    b"1e999",
    b"nan",
    b"-1",
    b"0x10",
    b"1_0",
    b"[" * 2000,
    b"{a=" * 500,
    b"9" * 400,
    b"inf",
    b"true",
)
_RULE_FRAGMENTS = (*_TEXT_FRAGMENTS, *_NUMBERS, b"\\ud800", b"composition", b"inverse", b'["a", "b"]')
_KEYS = tuple(f"{path}=".encode() for path, _ in setting_keys())
_SETS = (b"train.lr=1e-3", b"model.dim=100\nmodel.dropout=[0.1, 0.2]", b"loss.name=margin", b"train.schedule='cosine'")
_TOML_FRAGMENTS = (
    *(*_NUMBERS, b"[train]\n", b"[[train]]\n", b"train.", b"=", b"'", b'"""', b"\\ud800", b"\0", b"\xff", b"a." * 999),
    *(b"1979-05-27", b"#", b"\n", b"{", b"}", b"]", b",", b"low = 1", b"high = 2", b"log = true"),
)
_SPACES = (
    b"[train]\nlr = {low = 1e-4, high = 1e-2, log = true}\n[model]\ndim = [50, 100]\n",
    b'[loss]\nname = ["margin", "cross-entropy"]\nmargin = {low = 1, high = 12}\n',
)


# --- run folders ------------------------------------------------------------------------------------------------------


def _run(name: str, data: bytes, folder: Path) -> None:
    """Open a copy of a run in which one file is replaced."""
    path = folder / "run"
    if not path.exists():
        _make_run(path)
    original = (path / name).read_bytes()
    try:
        (path / name).write_bytes(data)
        if name.startswith("graph/"):
            load_graph(path / "graph")
        if name == "checkpoint.safetensors":
            RunFolder.open(path).load_checkpoint()
        if name == "metrics.json":
            RunFolder.open(path).metrics()
        if name in ("checkpoint.safetensors", "metrics.json"):
            pairre.check_run(path)
        pairre.load_run(path, "cpu")
    finally:
        (path / name).write_bytes(original)


def _make_run(path: Path) -> None:
    """Copy the stored run and add the files that only some runs have."""
    shutil.copytree(RUN, path)
    for name, data in _optional_files().items():
        (path / name).write_bytes(data)


@cache
def _optional_files() -> dict[str, bytes]:
    """Return files of run folders that the stored run does not have, by name."""
    progress = {"step": 3, "best_mrr": 0.5, "validations_without_gain": 0, "seconds": 1.0}
    tensors = save({"entity": torch.zeros(3, 4)}, {"progress": json.dumps(progress)})
    return {"checkpoint.safetensors": tensors, "rules.tsv": b"body\thead\tkind\tconfidence\nr\tr\tsymmetry\t1.0\n"}


def _typed_graph(name: str, data: bytes, folder: Path) -> None:
    """Load a stored graph with types and candidates, one file of which is replaced."""
    path = folder / "typed"
    if not path.exists():
        _save_typed_graph(path)
    original = (path / name).read_bytes()
    try:
        (path / name).write_bytes(data)
        load_graph(path)
    finally:
        (path / name).write_bytes(original)


def _save_typed_graph(path: Path) -> None:
    ids = torch.tensor([[0, 0, 1], [1, 0, 0]], dtype=torch.int32)
    names = Vocabulary(["a", "b"], "entity"), Vocabulary(["r"], "relation")
    candidates = {
        f"{split}.{side}": ids[:, :2].contiguous() for split in ("valid", "test") for side in ("head", "tail")
    }
    Graph("g", *names, ids, ids, ids, candidates=candidates, types={"x": 0, "y": 1}).save(path)


_RUN_FILES = (
    *("run.json", "recipe.toml", "log.jsonl", "model.safetensors", "checkpoint.safetensors", "rules.tsv"),
    *("metrics.json", "graph/valid.parquet"),
    *("graph/entities.parquet", "graph/relations.parquet", "graph/train.parquet"),
)


def _run_seeds(name: str) -> tuple[bytes, ...]:
    return (_optional_files()[name] if name in _optional_files() else (RUN / name).read_bytes(),)


@cache
def targets() -> dict[str, Target]:
    """Return all targets by name."""
    options = (b"\0", b"\x80", b"\x81", b"\x83", b"\x08", b"\x10", b"\x42")
    tables = tuple(option + table for table in _TABLES for option in options)
    found = {
        f"delimited{ending}": Target(partial(_delimited, ending), tables, _TEXT_FRAGMENTS)
        for ending in (".tsv", ".csv", ".txt")
    }
    found["folder"] = Target(_folder, (b"\0\0".join((_LINES, _LINES[:30], _LINES[30:])),), _TEXT_FRAGMENTS)
    found["parquet"] = Target(partial(_triples, ".parquet"), _parquet_seeds(), (b"\0" * 8, b"\xff" * 8, b"PAR1"))
    for ending, seeds in _RDF_SEEDS.items():
        found[f"rdf{ending}"] = Target(partial(_triples, ending), seeds, _RDF_FRAGMENTS)
    for ending in (".tsv.gz", ".csv.zst", ".nt.gz", ".parquet.zst"):
        content = {"nt": _RDF_SEEDS[".nt"][0], "parquet": _parquet_seeds()[0]}.get(ending.split(".")[1], _LINES)
        compressed = gzip.compress(content, mtime=0) if ending.endswith("gz") else _zstd(content)
        found[f"compressed{ending}"] = Target(
            partial(_compressed, ending), (b"\0" + compressed, b"\1" + content), _TEXT_FRAGMENTS
        )
    found["archive"] = Target(
        _archive, _archive_seeds(), (b"\0" * 512, b"PK\x01\x02", b"ustar", b"train.txt", b"9" * 11)
    )
    found["ogb-split"] = Target(_ogb_split, _ogb_seeds(), _PICKLE_FRAGMENTS)
    found["rules"] = Target(_rules, _RULES, _RULE_FRAGMENTS)
    found["rule"] = Target(_rule, (b"a\tb", "é\tü".encode()), _TEXT_FRAGMENTS)
    found["set"] = Target(_set, _SETS, (*_KEYS, *_TOML_FRAGMENTS))
    found["recipe"] = Target(partial(_toml, load_recipe), (Recipe().to_toml().encode(),), (*_KEYS, *_TOML_FRAGMENTS))
    found["space"] = Target(partial(_toml, load_space), _SPACES, (*_KEYS, *_TOML_FRAGMENTS))
    for name, seed in (("types.json", b'{"x": 0, "y": 1}'), ("negatives.safetensors", _negatives())):
        found[f"graph/{name}"] = Target(partial(_typed_graph, name), (seed,), (*_NUMBERS, b'"', b"{", b"\xff"))
    for name in _RUN_FILES:
        found[f"run/{name}"] = Target(
            partial(_run, name), _run_seeds(name), (*_NUMBERS, b'"', b"{", b"\xff", b"\0" * 8)
        )
    others = inputs() | folder_inputs() | server_inputs()
    return found | {name: Target(*parts) for name, parts in others.items()}


def _negatives() -> bytes:
    ids = torch.zeros(2, 2, dtype=torch.int32)
    return save({f"{split}.{side}": ids.clone() for split in ("valid", "test") for side in ("head", "tail")})
