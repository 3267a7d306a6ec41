"""Every format is read as the reader in memory reads it, and every fault names its file and row."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pairre
from pairre.graph.ingest.ingest import ingest
from pairre.graph.ingest.readers import unescaped
from pairre.support.errors import GraphError, PairREError, RunError

pytest.importorskip("duckdb")
ALL = (1.0, 0.0, 0.0)
ROWS = [("Paris", "in", "France"), ("Köln", "in", "Germany"), ("Köln", "near", "Bonn"), ('a "b"', "in", "x; y,z")]


def same(source, tmp_path, compare_with=None, **options):
    """Ingest a source, compare it with what is read in memory, and return the graph."""
    graph = pairre.load_graph(ingest(source, tmp_path / "made", split=ALL, **options))
    expected = pairre.load_graph(compare_with or source, split=ALL, **options)
    assert sorted(graph.names(graph.train)) == sorted(expected.names(expected.train))
    skipped = {what: number for what, number in graph.annotations.skipped.items() if what != "labels"}
    assert skipped == expected.annotations.skipped
    return graph


def lines(rows, delimiter, end="\n"):
    return "".join(delimiter.join(row) + end for row in rows).encode()


def quoted(rows):
    return [tuple('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]


@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        ("a.tsv", lines(ROWS, "\t"), {}),
        ("a.tsv", lines(ROWS, "\t", "\r\n"), {}),
        ("a.tsv", b"\xef\xbb\xbf" + lines(ROWS, "\t"), {}),
        ("a.tsv", lines(ROWS, "\t").rstrip(b"\n"), {}),
        ("a.tsv", b"\n\n" + lines(ROWS, "\t").replace(b"\n", b"\n\n"), {}),
        ("a.tsv", lines([("head", "relation", "tail"), *ROWS], "\t"), {}),
        ("a.tsv", lines([("tail", "head", "relation"), *ROWS], "\t"), {}),
        ("a.tsv", lines([("x", "y", "z"), *ROWS], "\t"), {"header": True}),
        ("a.tsv", lines([("head", "relation", "tail"), *ROWS], "\t"), {"header": False}),
        ("a.tsv", lines([(*row, "more", "") for row in ROWS], "\t"), {"columns": (3, 2, 1)}),
        ("a.tsv", lines([("p", "q", "r", "weight"), *((*row, "1") for row in ROWS)], "\t"),
         {"columns": ("r", "q", "p"), "weights": "none"}),
        ("a.txt", lines(ROWS[:3], "|"), {}),
        ("a.txt", lines(ROWS[:3], ";"), {"delimiter": ";"}),
        ("a.csv", lines(quoted(ROWS), ","), {}),
        ("a.csv", lines(quoted([*ROWS, ("two\nlines", "in", "x")]), ","), {}),
        ("a.csv", lines(quoted(ROWS), ";"), {}),
        ("a.tsv.gz", gzip.compress(lines(ROWS, "\t")), {}),
        ("A.CSV.GZ", gzip.compress(lines(quoted(ROWS), ",")), {}),
        ("a.csv.zst", bytes(pa.compress(lines(quoted(ROWS), ","), "zstd", asbytes=True)), {}),
        ("it's.tsv", lines(ROWS, "\t"), {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_text(tmp_path, name, data, options):
    (tmp_path / name).write_bytes(data)
    assert same(tmp_path / name, tmp_path, **options).num_relations >= 2


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.int64()])
def test_parquet(tmp_path, kind):
    values = [[1, 2, 3], [7, 7, 8], [2, 3, 4]] if kind == pa.int64() else list(zip(*ROWS, strict=True))
    columns = dict(zip(('sub"ject', "predicate", "object"), (pa.array(column, kind) for column in values), strict=True))
    pq.write_table(pa.table({"other": pa.nulls(len(values[0])), **columns}), tmp_path / "a.parquet")
    same(tmp_path / "a.parquet", tmp_path, columns=('sub"ject', "predicate", "object"))


NTRIPLES = r"""
<http://x/a> <http://x/p> <http://x/b> .
<http://x/a><http://x/p><http://x/c>. # a comment

# nothing else
	<http://x/caf\u00e9> <http://x/p> <http://x/\U0001F600> .
<http://x/a> <http://x/name> "a <b> \"c\" ."@en-GB .
<http://x/a> <http://x/size> "12"^^<http://www.w3.org/2001/XMLSchema#integer> .
<http://x/a> <http://www.w3.org/2000/01/rdf-schema#label> "A" .
_:one <http://x/p> <http://x/a> .
<http://x/a> <http://x/p> _:one.2 .
_:list <http://www.w3.org/1999/02/22-rdf-syntax-ns#first> <http://x/a> .
"""


@pytest.mark.parametrize("keep_blank", [False, True])
@pytest.mark.parametrize("name", ["a.nt", "a.nt.gz"])
def test_ntriples(tmp_path, name, keep_blank):
    pytest.importorskip("pyoxigraph")
    data = NTRIPLES.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    graph = same(tmp_path / name, tmp_path, keep_blank=keep_blank)
    assert graph.entities.find("http://x/café") is not None
    assert graph.annotations.skipped["labels"] == 1


def test_escapes():
    assert unescaped(r"caf\u00e9 \U0001F600 \n") == "café 😀 \\n"


@pytest.mark.parametrize("source", ["parts", "parts/*.tsv*", "par*/[ab].t*"])
def test_several_files_are_one_graph(tmp_path, source, monkeypatch):
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "a.tsv").write_bytes(lines([("head", "relation", "tail"), *ROWS[:2]], "\t"))
    (parts / "b.tsv.gz").write_bytes(gzip.compress(lines(ROWS[1:], "\t")))
    (tmp_path / "all.tsv").write_bytes(lines(ROWS, "\t"))
    monkeypatch.chdir(tmp_path)
    graph = same(source, tmp_path, compare_with="all.tsv")
    assert graph.name == "parts"


def test_a_first_row_that_may_be_a_header_is_warned_of(tmp_path, caplog):
    (tmp_path / "a.tsv").write_bytes(lines([("x", "y", "z"), *ROWS], "\t"))
    ingest(tmp_path / "a.tsv", tmp_path / "g", split=ALL)
    assert "the first row ('x', 'y', 'z') may be a header" in caplog.text
    caplog.clear()
    (tmp_path / "b.tsv").write_bytes(lines([*ROWS, *ROWS], "\t"))
    ingest(tmp_path / "b.tsv", tmp_path / "h", split=ALL)
    assert "header" not in caplog.text


FAULTS = [
    ("a.tsv", b"a\tb\tc\nd\te\n", r"a\.tsv:2: 2 columns, expected 3 \(head, relation, tail\)"),
    ("a.tsv", b"a\tb\tc\nd\te\tf\tg\n", r"a\.tsv:2: 4 columns, expected 3"),
    ("a.tsv", b"a\tb\tc\n\nd\t\tf\n", r"a\.tsv:3: the relation is empty"),
    ("a.tsv", "a\tb\tc\n\u00a0\te\tf\n".encode(), r"a\.tsv:2: the head is empty"),
    ("a.tsv", b"a\tb\tc\nd\t\xff\tf\n", r"a\.tsv:2: invalid UTF-8 \(byte 0xff at position 3\)"),
    ("a.tsv", b"", r"a\.tsv: the file is empty"),
    ("a.tsv", b"head\trelation\ttail\n", r"a\.tsv: no triples"),
    ("a.csv", b'a,b,"c\nd,e,f\n', r"a\.csv:1: a quote that is not closed"),
    ("a.tsv", b"head\trelation\ttail\tweight\na\tb\tc\t1\n", "has a column of weights.*--weights none"),
    ("a.tsv.gz", b"no gzip at all", r"a\.tsv\.gz: "),
    ("a.tsv.gz", gzip.compress(b"a\tb\tc\n" * 5000)[:-20], r"a\.tsv\.gz: "),
    ("a.parquet", b"no parquet", r"a\.parquet: not a readable Parquet file"),
    ("a.nt", b"<a:a> <a:b> <a:c> .\n<a:a> <a:b> .\n", r"a\.nt:2: not a triple of N-Triples: <a:a> <a:b> \."),
    ("a.nt", b'<a:a> <a:b> "x" .\n', r"a\.nt: no triples \(1 literals skipped\)"),
    ("a.ttl", b"<a:a> <a:b> <a:c> .\n", r"a\.ttl: this ending cannot be ingested; those that can: \.tsv"),
    ("a.parquet.gz", b"", r"this ending cannot be ingested"),
    ("a[1].tsv", b"a\tb\tc\n", "rename it"),
]


@pytest.mark.parametrize(("name", "data", "message"), FAULTS, ids=range(len(FAULTS)))
def test_a_fault_is_one_line_that_says_where(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(GraphError, match=message) as found:
        ingest(tmp_path / name, tmp_path / "g")
    assert "\n" not in str(found.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_fault_in_one_of_many_parts(tmp_path):
    (tmp_path / "parts").mkdir()
    for number in range(5):
        data = b"a\tb\tc\n" * 10 + (b"d\te\n" if number == 3 else b"")
        (tmp_path / "parts" / f"{number}.tsv").write_bytes(data)
    with pytest.raises(GraphError, match=r"parts/3\.tsv:11: 2 columns"):
        ingest(tmp_path / "parts", tmp_path / "g")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([None, "b"], r"a\.parquet: row 1: the head \('head'\) is null"),
        (["a", " "], r"row 2: the head \('head'\) is empty"),
        ([1.5, 2.5], "column 'head' holds double, not names"),
    ],
)
def test_faults_of_parquet(tmp_path, values, message):
    table = pa.table({"head": values, "relation": ["r", "r"], "tail": ["x", "y"]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(GraphError, match=message):
        ingest(tmp_path / "a.parquet", tmp_path / "g")


def test_sources_and_options_that_make_no_sense(tmp_path):
    source = tmp_path / "a.tsv"
    source.write_bytes(lines(ROWS, "\t"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "splits").mkdir()
    (tmp_path / "splits/train.tsv").write_bytes(lines(ROWS, "\t"))
    (tmp_path / "only-test").mkdir()
    (tmp_path / "only-test/test.tsv").write_bytes(lines(ROWS, "\t"))
    made = tmp_path / "made"
    for wrong, options, message in (
        ("none*.tsv", {}, "no file is named like this"),
        ("missing.tsv", {}, "no such file"),
        ("empty", {}, "no file in this folder can be ingested"),
        ("only-test", {}, "no train file in this folder"),
        ("splits", {"seed": 1}, "has splits of its own"),
        ("a.tsv", {"memory": "10MB"}, "at least 500 MB expected"),
        ("a.tsv", {"memory": "much"}, "'much': an amount of memory such as 2GB or 500MB expected"),
        ("a.tsv", {"split": (0.5, 0.1, 0.1)}, "three percentages"),
        ("a.tsv", {"weights": "w"}, "graphs on disk have no weights"),
    ):
        with pytest.raises(PairREError, match=message):
            ingest(tmp_path / wrong, made, **options)
        assert not made.exists()
    ingest(source, made)
    with pytest.raises(RunError, match="made: exists; choose another --out"):
        ingest(source, made)


def test_a_full_disk_is_noticed_before_the_work(tmp_path, monkeypatch):
    import shutil

    (tmp_path / "a.tsv").write_bytes(lines(ROWS, "\t"))
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(RunError, match=r"g: up to .* are needed on its disk, and 0 B are free"):
        ingest(tmp_path / "a.tsv", tmp_path / "g")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tsv"]


def test_without_duckdb_an_error_says_which_extra_brings_it(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "duckdb", None)
    (tmp_path / "a.tsv").write_bytes(lines(ROWS, "\t"))
    with pytest.raises(PairREError, match=r"pip install 'pairre\[big\]'"):
        ingest(tmp_path / "a.tsv", tmp_path / "g")


def test_a_disk_that_is_full_when_the_database_opens(tmp_path, monkeypatch):
    import duckdb

    def full(*_, **__):
        raise duckdb.IOException('IO Error: Could not write file "work.duckdb": No space left on device')

    (tmp_path / "a.tsv").write_bytes(lines(ROWS, "\t"))
    monkeypatch.setattr(duckdb, "connect", full)
    with pytest.raises(RunError, match=r"the disk is full; free some space and repeat the command"):
        ingest(tmp_path / "a.tsv", tmp_path / "g")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tsv"]
