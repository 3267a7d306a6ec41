"""Names and ids: there and back, through Parquet, and what is offered for a name that is not there."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairre.graph import Vocabulary
from pairre.support.errors import NameNotFoundError

CITIES = Vocabulary(["Paris", "London", "New York", "york", "Berlin", "São Paulo", "http://e.org/Rome"], "entity")


@settings(deadline=None)
@given(names=st.lists(st.text(st.characters(codec="utf-8")), unique=True, max_size=30))
def test_names_and_ids_through_parquet(tmp_path_factory, names):
    path = tmp_path_factory.mktemp("names") / "names.parquet"
    Vocabulary(names, "entity").save(path)
    again = Vocabulary.load(path, "entity")
    assert len(again) == len(names)
    assert [again[i] for i in range(len(names))] == names
    assert [again.id(name) for name in names] == list(range(len(names)))
    assert again.name_list(range(len(names) - 1, -1, -1)) == names[::-1]


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("Pariss", "Paris"),
        ("paris", "Paris"),
        ("PARIS", "Paris"),
        ("Berlni", "Berlin"),
        ("new yrok", "New York"),
        ("Sao Paulo", "São Paulo"),
        ("Rome", "http://e.org/Rome"),  # part of a name
        ("e.org", "http://e.org/Rome"),
    ],
)
def test_the_nearest_name_comes_first(typed, first):
    assert CITIES.nearest(typed)[0] == first


def test_near_names_are_few_and_each_once():
    names = Vocabulary([f"entity {i}" for i in range(100)], "entity")
    near = names.nearest("entity")
    assert len(near) == len(set(near)) == 5
    assert CITIES.nearest("") != []
    assert Vocabulary([], "entity").nearest("x") == []
    assert CITIES.nearest("York", count=2) == ["york", "New York"]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("Londn", "no entity named 'Londn'; nearest: 'London'"),
        ("zzzzqqqq", "no entity named 'zzzzqqqq'"),
        ("a\nb", r"no entity named 'a\nb'"),
        ("O'Hara", 'no entity named "O\'Hara"'),
    ],
)
def test_the_error_is_one_line_with_the_nearest(typed, message):
    with pytest.raises(NameNotFoundError) as caught:
        CITIES.id(typed)
    assert str(caught.value) == message


def test_a_pattern_is_only_a_name():
    assert Vocabulary(["a.c", "abc"], "relation").id("a.c") == 0
    with pytest.raises(NameNotFoundError, match=r"^no relation named '\.\*'$"):
        Vocabulary(["xyz"], "relation").id(".*")


@pytest.mark.parametrize("prefix", ["", "http://www.example.org/entity/"])
def test_a_large_vocabulary_still_finds_a_typo(prefix):
    names = Vocabulary([f"{prefix}Q{i}" for i in range(30_000)] + [f"{prefix}Zanzibar"], "entity")
    assert names.nearest(f"{prefix}Zanzibr")[0] == f"{prefix}Zanzibar"
    assert names.nearest("ZANZI") == [f"{prefix}Zanzibar"]
    assert names.id(f"{prefix}Q29999") == 29_999


def test_repr():
    assert repr(CITIES) == "Vocabulary(7 entity names)"
