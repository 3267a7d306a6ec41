"""Search of names: what is found by the beginning, by a word and with typing errors, and in which order."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairre.graph import Vocabulary
from pairre.graph.names import Names
from pairre.serve.search import MAX_TEXT, SearchIndex, edit_distances


def index(names, labels=None, num_facts=None):
    array = None if labels is None else pa.array(labels, pa.string())
    counts = np.zeros(len(names), np.int64) if num_facts is None else np.array(num_facts)
    return SearchIndex(Names(Vocabulary(names, "entity"), array, {}), counts)


def found(searched, text, limit=10):
    return [(hit.id, hit.match) for hit in searched.find(text, limit)]


def test_the_kinds_of_match_come_in_order_and_frequent_names_first():
    searched = index(["Paris", "Parison", "Parish", "New Paris", "Parks", "Rome"], num_facts=[1, 2, 9, 5, 3, 4])
    expected = [(0, "exact"), (2, "prefix"), (1, "prefix"), (3, "word"), (4, "typo")]
    assert found(searched, "paris") == expected
    assert found(searched, "paris", 2) == expected[:2]


def test_labels_and_local_names_are_found():
    searched = index(
        ["Q90", "http://example.org/x/Grand_Duchy", "http://example.org/Éire"], labels=["Paris", None, "Ireland"]
    )
    assert found(searched, "pari") == [(0, "prefix")]
    assert found(searched, "q90") == [(0, "exact")]
    assert found(searched, "grand d") == [(1, "prefix")]
    assert found(searched, "duchy") == [(1, "word")]
    assert found(searched, "eire") == [(2, "exact")]
    assert found(searched, "irelnad") == [(2, "typo")]
    assert found(searched, "http://example.org/x")[0] == (1, "prefix")


def test_a_text_that_several_names_mean():
    searched = index(["a", "b", "c"], labels=["Springfield", "Springfield", "Shelbyville"], num_facts=[1, 2, 3])
    assert found(searched, "Springfield") == [(1, "exact"), (0, "exact")]


@pytest.mark.parametrize("text", ["", " ", "\0", "\ud800", "_", "\u0301", "x" * 100_000, "🦆" * 50, "%", ".*", "\n"])
def test_any_text_is_only_looked_up(text):
    assert isinstance(found(index(["Paris", "x" * 5000, ".*"]), text), list)
    assert found(index([]), text) == []


def test_long_names_are_found_by_their_beginning_and_whole():
    name = "A" + "very " * 2000 + "long name"
    searched = index([name, name + " two"])
    assert {id for id, _ in found(searched, "avery very")} == {0, 1}
    assert found(searched, name)[0] == (0, "exact")
    assert len(name) > MAX_TEXT


def test_of_very_many_names_the_frequent_ones_are_indexed_and_all_are_found_exactly(monkeypatch):
    monkeypatch.setattr("pairre.serve.search.MAX_INDEXED", 2)
    searched = index(["Paris", "Parison", "Parish"], num_facts=[1, 9, 5])
    assert found(searched, "pari") == [(1, "prefix"), (2, "prefix")]
    assert found(searched, "Paris")[0] == (0, "exact")


def plain_distance(typed, key):
    """The definition, letter by letter: the least over all beginnings of the key."""
    rows = [list(range(len(key) + 1))]
    for i, letter in enumerate(typed, start=1):
        row = [i]
        for j, other in enumerate(key, start=1):
            best = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == key[j - 2] and typed[i - 2] == other:
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return min(rows[-1])


@settings(max_examples=200)
@given(st.text("abc", min_size=1, max_size=7), st.lists(st.text("abc", min_size=1, max_size=9), min_size=1, max_size=5))
def test_edit_distances_are_those_of_the_definition(typed, keys):
    assert edit_distances(typed, keys).tolist() == [plain_distance(typed, key) for key in keys]


def test_every_name_is_found_with_a_typing_error_in_it():
    letters = random.Random(0)
    names = sorted({"".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=9)) for _ in range(3000)})
    searched = index(names)
    for id in range(0, len(names), 100):
        name, place = names[id], letters.randrange(8)
        swapped = name[:place] + name[place + 1] + name[place] + name[place + 2 :]
        missing, more = name[:place] + name[place + 1 :], name[:place] + "q" + name[place:]
        for typed in (swapped, missing, more):
            assert id in [hit for hit, _ in found(searched, typed)], (name, typed)


@settings(max_examples=50)
@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=20, unique=True), st.data())
def test_a_name_is_always_found_by_itself(names, data):
    names = [name for name in names if name.strip() and "\0" not in name]
    if names:
        searched = index(names)
        name = data.draw(st.sampled_from(names))
        hits = found(searched, name, len(names))
        assert not hits or names[hits[0][0]] == name  # a name of accents alone folds to nothing
