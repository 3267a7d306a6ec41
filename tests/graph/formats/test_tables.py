"""Files of triples as users have them: every format and compression, headers, columns, odd names, and every fault."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairre.graph.formats import Layout, delimited, read_triples
from pairre.support.errors import GraphError

TRIPLES = [("a", "likes", "b"), ("b", "likes", "c"), ("a", "knows", "c")]
TSV = "".join("\t".join(t) + "\n" for t in TRIPLES)
TITLES = ("head", "relation", "tail")
TEXT = (pa.string(),) * 3


def compress(data: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(data)
    return pa.compress(data, codec="zstd", asbytes=True) if suffix == ".zst" else data


def parquet(rows=TRIPLES, titles=TITLES, types=TEXT, **options) -> bytes:
    out = io.BytesIO()
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
    pq.write_table(pa.Table.from_arrays(columns, names=list(titles)), out, **options)
    return out.getvalue()


def read(path: Path, data: str | bytes, **layout):
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    columns = read_triples(path, Layout(**layout))
    return list(zip(columns.head.to_pylist(), columns.relation.to_pylist(), columns.tail.to_pylist(), strict=True))


def fault(path: Path, data: str | bytes, **layout) -> str:
    """The message of the error, without the folder."""
    with pytest.raises(GraphError) as caught:
        read(path, data, **layout)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{path.parent}/", "")


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize(
    ("suffix", "data"),
    [
        (".tsv", TSV),
        (".txt", TSV),
        (".txt", TSV.replace("\t", " ")),
        (".csv", TSV.replace("\t", ",")),
        (".csv", TSV.replace("\t", ";")),
        (".csv", TSV.replace("\t", "|")),
        (".csv", TSV),
        (".parquet", parquet()),
        (".TSV", TSV),
    ],
)
def test_every_format_gives_the_same_triples(tmp_path, suffix, data, compression):
    data = data.encode() if isinstance(data, str) else data
    assert read(tmp_path / f"g{suffix}{compression}", compress(data, compression)) == TRIPLES


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_files_may_be_joined_end_to_end(tmp_path, suffix):
    lines = TSV.splitlines(keepends=True)
    assert read(tmp_path / f"g.tsv{suffix}", b"".join(compress(x.encode(), suffix) for x in lines)) == TRIPLES


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\ufeff"), min_size=1, max_size=8)
ROWS = st.lists(st.tuples(*[NAMES.filter(str.strip)] * 3), min_size=1, max_size=20)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, block=st.sampled_from([1 << 10, 1 << 20]))
def test_csv_gives_back_what_a_csv_writer_wrote(tmp_path_factory, rows, block):
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "_BLOCK_SIZE", block)
        path = tmp_path_factory.mktemp("csv") / "g.csv"
        assert read(path, out.getvalue(), header=False, delimiter=",") == rows


@settings(max_examples=60, deadline=None)
@given(rows=ROWS)
def test_tsv_keeps_every_other_character(tmp_path_factory, rows):
    clean = str.maketrans("\t\r\n", "___")
    rows = [tuple(name.translate(clean) for name in row) for row in rows]
    path = tmp_path_factory.mktemp("tsv") / "g.tsv"
    assert read(path, "".join("\t".join(row) + "\n" for row in rows), header=False) == rows


@pytest.mark.parametrize(
    ("name", "data", "layout", "expected"),
    [
        ("g.tsv", "NA\tnull\tnan\n1\tNULL\tNone\n", {}, [("NA", "null", "nan"), ("1", "NULL", "None")]),
        ("g.csv", "NA,null,1\n", {}, [("NA", "null", "1")]),
        ("g.tsv", " New York \tis in\tUSA\n", {}, [(" New York ", "is in", "USA")]),
        ("g.tsv", '"x\tis\t5" pipe\n', {}, [('"x', "is", '5" pipe')]),
        ("g.csv", '5" pipe,is,"a ""b"", c"\n', {}, [('5" pipe', "is", 'a "b", c')]),
        ("g.csv", '"two\nlines",r,"tab\there"\nx,r,y', {}, [("two\nlines", "r", "tab\there"), ("x", "r", "y")]),
        (
            "g.csv",
            '"Paris, France";in;"EU, West"\nA;in;B\n',
            {},
            [("Paris, France", "in", "EU, West"), ("A", "in", "B")],
        ),
        ("g.txt", "New York\tis in\tUSA\nA\tis in\tB\n", {}, [("New York", "is in", "USA"), ("A", "is in", "B")]),
        ("g.tsv", "é\t→\t日本\n", {}, [("é", "→", "日本")]),
        ("g.tsv", "\n\na\tr\tb\n\n\nb\tr\tc\n\n", {}, [("a", "r", "b"), ("b", "r", "c")]),
        ("g.tsv", "a\tr\tb", {}, [("a", "r", "b")]),
        ("g.txt", "\n" * 50 + "a\tr\tb\n", {}, [("a", "r", "b")]),
        ("g.tsv", "a\tr\tb\r\nb\tr\tc\r\n", {}, [("a", "r", "b"), ("b", "r", "c")]),
        ("g.tsv", "a\tr\tb\rb\tr\tc\r", {}, [("a", "r", "b"), ("b", "r", "c")]),
        ("g.tsv", "\ufeffa\tr\tb\n", {}, [("a", "r", "b")]),
        ("g.csv", "\ufeffhead,relation,tail\r\na,r,b\r\n", {}, [("a", "r", "b")]),
        # headers and columns
        ("g.tsv", "\n\nhead\trelation\ttail\na\tr\tb\n", {}, [("a", "r", "b")]),
        ("g.csv", "Object,Subject,Predicate\nb,a,r\n", {}, [("a", "r", "b")]),
        ("g.csv", "id,source,head,relation,tail\n1,web,a,r,b\n", {}, [("a", "r", "b")]),
        ("g.tsv", "head\trelation\ttail\na\tr\tb\n", {"header": False}, [TITLES, ("a", "r", "b")]),
        ("g.tsv", "x\ty\tz\na\tr\tb\n", {"header": True}, [("a", "r", "b")]),
        ("g.tsv", "1\ta\tr\tb\t0.5\n", {"columns": ("2", "3", "4")}, [("a", "r", "b")]),
        ("g.tsv", "b\tr\ta\n", {"columns": ("3", "2", "1")}, [("a", "r", "b")]),
        ("g.csv", "n, from x ,via,to\n1,a,r,b\n", {"columns": ("from x", "via", "to")}, [("a", "r", "b")]),
        ("g.csv", "n,x,x\n1,a,b\n", {"columns": ("2", "n", "3")}, [("a", "1", "b")]),
        ("g.csv", '"two\nlines",x,y\na,r,b\n', {"columns": ("two lines", "x", "y")}, [("a", "r", "b")]),
        ("g.txt", "a:r:b\n", {"delimiter": ":"}, [("a", "r", "b")]),
    ],
)
def test_names_headers_and_columns(tmp_path, name, data, layout, expected):
    assert read(tmp_path / name, data, **layout) == expected


@pytest.mark.parametrize(
    ("name", "data", "layout", "message"),
    [
        ("g.tsv", "a\tr\tb\nc\tr\n", {}, "g.tsv:2: 2 columns, expected 3 (head, relation, tail)"),
        ("g.tsv", "a\tr\tb\n\n\nc\n", {}, "g.tsv:4: 1 column, expected 3 (head, relation, tail)"),
        ("g.tsv", "a\tr\tb\rc\r", {}, "g.tsv:2: 1 column, expected 3 (head, relation, tail)"),
        ("g.tsv", "a\tr\tb\nc\tr\td\te\n", {}, "g.tsv:2: 4 columns, expected 3 (head, relation, tail)"),
        (
            *("g.tsv", "\na\tr\tb\t1\n", {}),
            "g.tsv:2: 4 columns, expected 3 (head, relation, tail); pick them with --columns, e.g. --columns 1,2,3",
        ),
        ("g.tsv", "a\tr\tb\t1\nc\tr\td\n", {"columns": ("1", "2", "3")}, "g.tsv:2: 3 columns, expected 4"),
        ("g.tsv", "a b c\n", {}, "g.tsv:1: 1 column, expected 3 (head, relation, tail)"),
        ("g.csv", '"a\nb",r,c\n5" x,r\n', {}, "g.csv:3: 2 columns, expected 3 (head, relation, tail)"),
        ("g.tsv", "a\tr\tb\n\tr\tb\n", {}, "g.tsv:2: the head is empty"),
        ("g.tsv", "a\tr\tb\na\t \u00a0\tb\n", {}, "g.tsv:2: the relation is empty"),
        ("g.csv", 'h,r,t\n"a\nb",r,b\na,r,""\n', {}, "g.csv:4: the tail is empty"),
        ("g.tsv", b"a\tr\tb\na\tr\tb\xff\n", {}, "g.tsv:2: invalid UTF-8 (byte 0xff at position 6)"),
        ("g.tsv", "a\tr\tb\n".encode("utf-16"), {}, "g.tsv:1: invalid UTF-8 (byte 0xff at position 1)"),
        ("g.tsv", "", {}, "g.tsv: the file is empty"),
        ("g.csv", "\n\r\n\n", {}, "g.csv: the file is empty"),
        ("g.tsv", "head\trelation\ttail\n", {}, "g.tsv: no triples in this file"),
        ("g.csv", "head,relation,tail", {}, "g.csv: no triples in this file"),
        (
            "g.tsv",
            "a\tr\tb\n",
            {"columns": ("1", "2", "4")},
            "g.tsv:1: column 4 chosen as tail, but the file has 3 columns",
        ),
        (
            "g.tsv",
            "a\tr\tb\n",
            {"columns": ("0", "1", "2")},
            "g.tsv:1: column 0 chosen as head, but the file has 3 columns",
        ),
        ("g.tsv", "a\tr\tb\n", {"columns": ("1", "2", "1")}, "g.tsv:1: --columns 1,2,1 picks a column twice"),
        ("g.tsv", "a\tr\tb\n", {"columns": ("1", "2")}, "--columns 1,2: three columns expected, head,relation,tail"),
        (
            *("g.csv", "subject,via,to\na,r,b\n", {"columns": ("subjct", "via", "to")}),
            "g.csv:1: no column 'subjct' for head; did you mean 'subject'?; the header has: subject, via, to",
        ),
        (
            "g.tsv",
            "a\tr\tb\n",
            {"columns": ("1", "2", "²")},
            "g.tsv:1: no column '²' for tail; the header has: a, r, b",
        ),
        (
            *("g.tsv", "a\tr\tb\n", {"columns": ("x", "r", "b"), "header": False}),
            "g.tsv:1: no column 'x' for head; without a header, pick by number",
        ),
        (
            *("g.csv", "n,x,x\n1,a,b\n", {"columns": ("n", "x", "3")}),
            "g.csv:1: two columns are named 'x'; pick by number, e.g. --columns 1,2,3",
        ),
        (
            "g.tsv",
            "a||r||b\n",
            {"delimiter": "||"},
            "delimiter '||': one ASCII character, no quote or line break, expected",
        ),
        ("g.tsv.gz", TSV, {}, "not what its ending says, or damaged (zlib inflate failed"),
        ("g.tsv.zst", TSV, {}, "not what its ending says, or damaged (ZSTD decompress failed"),
        ("g.tsv.gz", b"", {}, "g.tsv.gz: the file is empty"),
        ("g.parquet", b"PAR1 but not really PAR1", {}, "g.parquet: not a readable Parquet file: "),
        ("g.parquet", b"", {}, "g.parquet: not a readable Parquet file: "),
        ("g.docx", "", {}, "g.docx: unknown ending '.docx'; known endings: ."),
        ("g.tar.gz", "", {}, "g.tar.gz: unknown ending '.tar'"),
        ("triples", "", {}, "triples: unknown ending 'triples'"),
    ],
)
def test_a_fault_is_one_line_that_says_where(tmp_path, name, data, layout, message):
    found = fault(tmp_path / name, data, **layout)
    assert message in found
    assert found.startswith((name, "delimiter", "--columns"))


@pytest.mark.parametrize(("suffix", "codec"), [(".tsv", ""), (".csv", ""), (".tsv", ".gz"), (".csv", ".zst")])
@pytest.mark.parametrize("line", [17, 2500, 5000])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("a§r§\udcff", "invalid UTF-8 (byte 0xff at position "),
        ("a§r", "2 columns, expected 3"),
        ("a§ §b", "the relation is empty"),
    ],
)
def test_a_fault_far_into_a_file_of_many_blocks(tmp_path, monkeypatch, suffix, codec, line, bad, message):
    monkeypatch.setattr(delimited, "_BLOCK_SIZE", 4096)
    lines = [f"entity-{i}§relation§entity-{7 * i}" for i in range(1, 5001)]
    lines[line - 1] = bad
    delimiter = "\t" if suffix == ".tsv" else ","
    data = "\n".join(lines).replace("§", delimiter).encode(errors="surrogateescape")
    assert fault(tmp_path / f"g{suffix}{codec}", compress(data, codec)).startswith(
        f"g{suffix}{codec}:{line}: {message}"
    )


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("lost", [1, 8, 1000, "all but 5"])
def test_a_compressed_file_that_is_cut_off(tmp_path, suffix, lost):
    whole = compress("".join(f"e{i * i}\tr\tf{i * 7919 % 10007}\n" for i in range(5000)).encode(), suffix)
    data = whole[:5] if isinstance(lost, str) else whole[:-lost]
    assert "the compressed file is cut off" in fault(tmp_path / f"g.tsv{suffix}", data)


@pytest.mark.parametrize("num_lines", [3, 50_000])
@pytest.mark.parametrize("bad", ['c,r,"d', 'c,"r,d', '"c,r,d', 'c,r,"d\nx,r,"y'])
def test_a_quote_that_is_never_closed_swallows_no_lines(tmp_path, num_lines, bad):
    data = f"a,r,b\n{bad}\n" + "e,r,f\n" * num_lines
    assert fault(tmp_path / "g.csv", data).startswith("g.csv:2: a quote that is not closed")


def test_an_inch_sign_is_no_quote(tmp_path):
    assert read(tmp_path / "g.csv", '5" pipe,r,b\n"a\nb",r,7" pipe\nx,r,3"\n')[1:] == [
        ("a\nb", "r", '7" pipe'),
        ("x", "r", '3"'),
    ]


def test_a_folder_or_nothing_where_a_file_should_be(tmp_path):
    (tmp_path / "g.tsv").mkdir()
    with pytest.raises(GraphError, match=r"g\.tsv: a folder, not a file$"):
        read_triples(tmp_path / "g.tsv")
    with pytest.raises(GraphError, match=r"h\.tsv: no such file$"):
        read_triples(tmp_path / "h.tsv")


DICTIONARY = pa.dictionary(pa.int8(), pa.string())


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), DICTIONARY])
def test_parquet_text_of_any_type(tmp_path, kind):
    assert read(tmp_path / "g.parquet", parquet(types=(kind,) * 3, row_group_size=2)) == TRIPLES


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.uint64(), pa.dictionary(pa.int32(), pa.int64())])
def test_parquet_whole_numbers_become_names(tmp_path, kind):
    rows = [(1, 10, 2), (2, 10, 3)]
    assert read(tmp_path / "g.parquet", parquet(rows, types=(kind,) * 3)) == [("1", "10", "2"), ("2", "10", "3")]


def test_parquet_columns_by_title_name_and_number(tmp_path):
    rows = [(0.5, "b", "a", "r")]
    titles, types = ("score", "object", "subject", "predicate"), (pa.float64(), *[pa.string()] * 3)
    data = parquet(rows, titles, types)
    assert read(tmp_path / "g.parquet", data) == [("a", "r", "b")]
    assert read(tmp_path / "g.parquet", data, columns=("object", "predicate", "subject")) == [("b", "r", "a")]
    assert read(tmp_path / "g.parquet", data, columns=("3", "4", "2")) == [("a", "r", "b")]
    assert "no column 'subjct' for head; did you mean 'subject'?" in fault(
        tmp_path / "g.parquet", data, columns=("subjct", "predicate", "object")
    )
    unnamed = parquet(rows, ("w", "x", "y", "z"), types)
    assert "4 columns, expected 3 (head, relation, tail); pick them with --columns" in fault(
        tmp_path / "g.parquet", unnamed
    )


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["a", None, "b"]), "row 2: the head ('head') is null"),
        (pa.array(["a", "b", None]).dictionary_encode(), "row 3: the head ('head') is null"),
        (pa.array(["a", "b", " \t"]), "row 3: the head ('head') is empty"),
        (pa.array([1.0, 2.0, 3.0]), "column 'head' holds double, not names"),
        (pa.array([True, False, True]), "column 'head' holds bool, not names"),
        (pa.array([["a"], ["b"], ["c"]]), "column 'head' holds list<element: string>, not names"),
        (pa.array([b"a", b"\xff", b"c"]), "not a readable Parquet file: Invalid UTF8"),
    ],
)
def test_parquet_that_holds_no_names(tmp_path, column, message):
    out = io.BytesIO()
    names = pa.array(["x", "y", "z"])
    pq.write_table(pa.table([column, names, names], names=list(TITLES)), out, row_group_size=1)
    assert fault(tmp_path / "g.parquet", out.getvalue()).startswith(f"g.parquet: {message}")


def test_parquet_without_rows_cut_off_or_with_two_columns_of_one_name(tmp_path):
    assert fault(tmp_path / "g.parquet", parquet()[:-20]).startswith("g.parquet: not a readable Parquet file: ")
    twice = parquet(titles=("x", "x", "y"))
    assert fault(tmp_path / "g.parquet", twice) == "g.parquet: two columns are named 'x'; give each its own name"
    pq.write_table(pa.table({title: pa.array([], pa.string()) for title in TITLES}), tmp_path / "e.parquet")
    with pytest.raises(GraphError, match=r"e\.parquet: no triples in this file$"):
        read_triples(tmp_path / "e.parquet")
