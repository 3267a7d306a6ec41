"""A name is found by its hash, in vocabularies that are looked at often and are large."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairre.graph import Vocabulary, vocabulary
from pairre.graph.name_index import NameIndex
from pairre.support.errors import NameNotFoundError

NAMES = ["Paris", "", "Köln", "Paris ", "a" * 300, "日本"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_every_name_has_its_id(kind):
    index = NameIndex(pa.array(NAMES, kind))
    assert [index.find(name) for name in NAMES] == list(range(len(NAMES)))
    assert index.find("paris") is None


def test_a_slice_of_an_array_has_ids_of_its_own():
    index = NameIndex(pa.array(NAMES)[2:])
    assert index.find("Köln") == 0
    assert index.find("Paris") is None


@given(st.lists(st.text(max_size=8), max_size=50))
def test_it_agrees_with_a_search(names):
    index = NameIndex(pa.array(names, pa.string()))
    for name in {*names, "no such name"}:
        assert index.find(name) == (names.index(name) if name in names else None)


def test_a_vocabulary_builds_an_index_after_some_searches(monkeypatch):
    monkeypatch.setattr(vocabulary, "_MAX_SCANNED", 2)
    found = Vocabulary(NAMES, "entity")
    for _ in range(2 * vocabulary._MAX_SCANS):
        assert found.id("Köln") == 2
        assert found.find("Rome") is None
    assert found._index is not None
    with pytest.raises(NameNotFoundError, match="no entity named 'Pariss'; nearest: 'Paris'"):
        found.id("Pariss")
    with pytest.raises(NameNotFoundError, match="UTF-8"):
        found.id("\udc80")


def test_more_text_than_an_array_of_strings_holds(monkeypatch, tmp_path):
    """Files are read as columns that have room for it; the real limit is 2 GiB."""
    from pairre.graph import assemble, load_graph

    for module in (vocabulary, assemble):
        monkeypatch.setattr(module, "MAX_TEXT", 10)
    (tmp_path / "a.tsv").write_text("Paris\tin\tFrance\nRome\tin\tItaly\n")
    graph = load_graph(tmp_path / "a.tsv", split=(1, 0, 0))
    assert graph.entities.names.type == pa.large_string()
    graph.save(tmp_path / "graph")
    stored = load_graph(tmp_path / "graph")
    assert stored.entities.names.type == pa.large_string()
    monkeypatch.undo()
    assert stored.fingerprint == load_graph(tmp_path / "a.tsv", split=(1, 0, 0)).fingerprint
    assert stored.find_entity("Rome") == graph.find_entity("rome") == graph.entities.id("Rome")
