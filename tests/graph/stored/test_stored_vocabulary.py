"""Names on disk are found by their hash, whatever their number, and by no other name."""

import numpy as np
import pyarrow as pa
import pytest

from pairre.graph.stored import vocabulary
from pairre.graph.stored.vocabulary import StoredVocabulary, VocabularyWriter, hash_name
from pairre.support.errors import GraphError, NameNotFoundError


def stored(folder, names, piece=3, kind=None):
    names = sorted(names, key=lambda name: (hash_name(name), name))
    writer = VocabularyWriter(folder, "entities", len(names))
    for start in range(0, len(names), piece):
        part = names[start : start + piece]
        writer.append(pa.array(part, kind or pa.string()), np.array([hash_name(name) for name in part], np.uint64))
    writer.close()
    return StoredVocabulary(folder, "entities", "entity"), names


@pytest.mark.parametrize("num", [0, 1, 2, 3, 4, 63, 64, 65, 1000])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_every_name_has_its_id(tmp_path, num, kind):
    found, names = stored(tmp_path, [f"näme {i}" for i in range(num)], kind=kind)
    assert found.names.to_pylist() == names
    assert [found.find(name) for name in names] == list(range(num))
    assert found.find("name") is None
    assert found.find_all(pa.array([*names, "none"])).to_pylist() == [*range(num), None]


def test_names_of_one_bucket_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(vocabulary, "hash_name", lambda name: len(name) << 60)
    names = ["a", "b", "cc", "dd", "ee", "fffffffff"]
    writer = VocabularyWriter(tmp_path, "entities", len(names))
    writer.append(pa.array(names), np.array([len(name) << 60 for name in names], np.uint64))
    writer.close()
    found = StoredVocabulary(tmp_path, "entities", "entity")
    assert [found.find(name) for name in names] == list(range(6))
    assert found.find("gg") is None


def test_a_name_that_is_missing(tmp_path, monkeypatch):
    found, _ = stored(tmp_path, ["Paris", "Rome"])
    with pytest.raises(NameNotFoundError, match="no entity named 'Pariss'; nearest: 'Paris'"):
        found.id("Pariss")
    with pytest.raises(NameNotFoundError, match="UTF-8"):
        found.id("\udc80")
    monkeypatch.setattr(vocabulary, "MAX_COMPARED", 1)
    with pytest.raises(NameNotFoundError, match=r"no entity named 'Pariss'$"):
        found.id("Pariss")


def test_files_that_do_not_fit_together(tmp_path):
    stored(tmp_path, ["Paris", "Rome", "Bonn"])
    np.save(tmp_path / "entities-text.npy", np.zeros(3, np.uint8))
    with pytest.raises(GraphError, match=r"entities-ends\.npy: damaged: it does not fit"):
        StoredVocabulary(tmp_path, "entities", "entity")
