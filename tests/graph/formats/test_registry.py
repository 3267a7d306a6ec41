"""The registry: a format is one registered function, and endings, compression and messages follow from it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from pairre.graph import formats, load_graph
from pairre.graph.formats import registry
from pairre.support.errors import GraphError

TEXT = "Paris -capital of-> France\n\nLyon -in-> France\nParis -in-> France\n"


@pytest.fixture
def arrows(monkeypatch):
    """A format from outside the package: lines of `head -relation-> tail`."""
    monkeypatch.setattr(registry, "_BY_ENDING", dict(registry._BY_ENDING))

    @formats.register(".arrows", help="lines of `head -relation-> tail`")
    def read_arrows(file):
        def rows():
            for number, line in file.lines():
                if line.strip():
                    head, arrow, rest = line.strip().partition(" -")
                    relation, end, tail = rest.partition("-> ")
                    if not arrow or not end:
                        raise GraphError(f"{file.path}:{number}: `head -relation-> tail` expected")
                    yield head, relation, tail

        return file.columns(rows())


@pytest.mark.parametrize("ending", [".arrows", ".ARROWS", ".arrows.gz", ".arrows.zst"])
def test_a_new_format_loads_a_file_and_a_folder(tmp_path, arrows, ending):
    data = TEXT.encode()
    if ending.endswith(".gz"):
        data = gzip.compress(data)
    elif ending.endswith(".zst"):
        data = pa.compress(data, codec="zstd", asbytes=True)
    file = tmp_path / f"train{ending}"
    file.write_bytes(data)
    expected = [("Paris", "capital of", "France"), ("Lyon", "in", "France"), ("Paris", "in", "France")]
    alone = load_graph(file, split=(1, 0, 0))
    assert sorted(alone.names(alone.train)) == sorted(expected)
    folder = load_graph(tmp_path)
    assert list(folder.names(folder.train)) == expected


def test_messages_and_help_name_a_new_format(tmp_path, arrows):
    assert {".tsv", ".txt", ".csv", ".parquet", ".nt"} <= set(formats.endings())
    assert ".arrows" in formats.endings()
    assert formats.endings_help() == f"{' '.join(formats.endings())}, each also .gz or .zst"
    assert "lines of `head -relation-> tail`" in {file_format.help for file_format in formats.formats()}
    with pytest.raises(GraphError, match=r"unknown ending '\.docx'; known endings: .*\.arrows.*, each also"):
        formats.read_triples(tmp_path / "g.docx")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no triples in this file"),
        ("a -r-> b\nc -r- d\n", "g.arrows:2: `head -relation-> tail` expected"),
        ("a -r-> b\nc -  -> d\n", "g.arrows: triple 2: the relation is empty"),
    ],
)
def test_faults_of_a_new_format(tmp_path, arrows, text, message):
    (tmp_path / "g.arrows").write_text(text)
    with pytest.raises(GraphError, match=message.replace(".", r"\.")):
        load_graph(tmp_path / "g.arrows")


def test_a_registered_ending_can_be_replaced(tmp_path, arrows):
    @formats.register(".tsv", help="one triple, whatever the file says")
    def read_constant(file):
        return file.columns([("a", "r", "b")])

    (tmp_path / "g.tsv").write_text("x\ty\tz\n")
    assert formats.read_triples(tmp_path / "g.tsv").head.to_pylist() == ["a"]
    assert ".csv" in formats.endings()


@pytest.mark.parametrize("ending", ["tsv", ".TSV", ".a.b", ".", "", ".gz"])
def test_an_ending_has_one_dot_and_is_lower_case(ending):
    with pytest.raises(ValueError, match="an ending such as"):
        formats.register(ending, help="")


def test_every_format_of_the_package_is_one_module():
    folder = Path(formats.__file__).parent
    for file_format in formats.formats():
        assert file_format.help
        assert Path(file_format.read.__code__.co_filename).parent == folder
