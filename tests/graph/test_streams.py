"""Lines with their numbers, and what a small compressed file may cost."""

import gzip

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from pairre.graph import load_graph, streams
from pairre.graph.streams import BYTE_ORDER_MARK, open_stream, read_lines
from pairre.support.errors import GraphError


@given(
    parts=st.lists(st.sampled_from([b"a", "é".encode(), b"\t", b"\n", b"\r", b"\r\n"])),
    mark=st.sampled_from([b"", BYTE_ORDER_MARK]),
    block=st.integers(1, 8),
)
def test_lines_are_those_of_splitlines(tmp_path_factory, parts, mark, block):
    file = tmp_path_factory.mktemp("lines") / "g.tsv"
    file.write_bytes(mark + b"".join(parts))
    lines = enumerate(b"".join(parts).splitlines(keepends=True), start=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "_BLOCK", block)
        found = list(read_lines(file))
    assert found == [(number, line.decode()) for number, line in lines if line.strip(b"\r\n")]


def test_a_line_has_a_greatest_length(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "MAX_LINE", 100)
    monkeypatch.setattr(streams, "_BLOCK", 10)
    file = tmp_path / "g.tsv"
    file.write_bytes(b"a\tb\tc\n\n" + b"x" * 200)
    with pytest.raises(GraphError, match=r"g\.tsv:3: a line of more than"):
        list(read_lines(file))


@pytest.mark.parametrize("name", ["g.tsv.gz", "g.tsv.zst", "g.csv.zst", "g.parquet.zst", "g.nt.zst", "g.rdf.gz"])
@pytest.mark.parametrize("content", [b"\n", b"a", b"a\tb\tc\n", b"<http://a> <http://b> <http://c> .\n"])
def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch, name, content):
    monkeypatch.setattr(streams, "RATIO_ALLOWANCE", 1 << 20)
    file, codec = tmp_path / name, streams.COMPRESSIONS[name[name.rindex(".") :]]
    with pa.output_stream(str(file), compression=codec) as stream:
        for _ in range(200):
            stream.write(content * (50_000 // len(content)))
    with pytest.raises(GraphError) as caught:
        load_graph(file)
    assert "\n" not in str(caught.value)
    with pytest.raises(GraphError, match="expands more than 64-fold"), open_stream(file) as stream:
        stream.read()


def test_repetitive_triples_are_no_bomb(tmp_path):
    text = "".join(f"http://example.org/entity/{i}\thttp://example.org/relation/{i % 3}\tx\n" for i in range(30_000))
    (tmp_path / "g.tsv.gz").write_bytes(gzip.compress(text.encode()))
    assert load_graph(tmp_path / "g.tsv.gz").num_relations == 3
