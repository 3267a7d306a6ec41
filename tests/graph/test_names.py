"""What people type means an id and what they read can be typed: IRIs, CURIEs, labels, local names, case and accents."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairre.graph import Vocabulary
from pairre.graph.names import Names
from pairre.support.errors import NameNotFoundError

BRICK = "https://brickschema.org/schema/Brick#"
ROWS = {  # name → label
    f"{BRICK}AHU": "Air Handling Unit",
    f"{BRICK}VAV": "Variable Air Volume Box",
    "http://e.org/vav": "Variable Air Volume Box",
    "http://e.org/floor/Étage_1": None,
    "http://e.org/room#101": "101",
    "http://e.org/hall#101": None,
    "Paris": None,
    "Köln": "Cologne",
    "cologne water": "Köln",
}
NAMES = Names(
    Vocabulary(ROWS, "entity"), pa.array(list(ROWS.values())), {"brick": BRICK, "ex": "http://e.org/", "": "urn:x:"}
)


@pytest.mark.parametrize("typed", ["brik:AHU", "brik:ahuu", "BRICK:AHU", "brik:AUH"])
def test_of_an_unknown_prefix_the_local_name_is_compared(typed):
    with pytest.raises(NameNotFoundError, match=r"nearest: 'Air Handling Unit' \(brick:AHU\)"):
        NAMES.find(typed)


def test_what_a_text_is_called_without_forgiving_anything():
    texts = [
        "brick:AHU",
        f"<{BRICK}AHU>",
        "Air Handling Unit",
        "air handling unit",
        "Köln",
        "Paris",
        "brick:New",
        "x:y",
    ]
    names = [f"{BRICK}AHU"] * 3 + ["air handling unit", "Köln", "Paris", f"{BRICK}New", "x:y"]
    assert NAMES.same(pa.array(texts)).to_pylist() == names
    plain = Names(Vocabulary(["a:b", "<c>", "d"], "entity"), None, {})
    assert plain.same(pa.array(["a:b", "<c>", "<d>", "<e>", "owl:Thing"])).to_pylist() == [
        "a:b",
        "<c>",
        "d",
        "<e>",
        "owl:Thing",
    ]


@pytest.mark.parametrize(
    ("typed", "row"),
    [
        (f"{BRICK}AHU", 0),
        (f"<{BRICK}AHU>", 0),
        ("brick:AHU", 0),
        ("Air Handling Unit", 0),
        ("air handling_unit", 0),
        ("AHU", 0),
        ("ahu", 0),
        ("VAV", 1),  # the local name of one; the other is `vav`
        ("vav", 2),
        ("Variable Air Volume Box (ex:vav)", 2),
        ("Variable Air Volume Box (http://e.org/vav)", 2),
        ("etage 1", 3),
        ("ex:floor/Étage_1", 3),
        ("101", 4),  # a label comes before local names
        ("ex:hall#101", 5),
        ("PARIS", 6),
        ("Köln", 7),  # a name comes before labels
        ("cologne", 7),
        ("Köln (cologne water)", 8),
    ],
)
def test_a_text_means_an_id(typed, row):
    assert NAMES.find(typed) == row
    assert NAMES.find_all(["Paris", typed, f"{BRICK}AHU"]) == [6, row, 0]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("Vav", "entity 'Vav' may mean 'Variable Air Volume Box' (brick:VAV), 'Variable Air Volume Box' (ex:vav); "),
        ("Variable Air Volume Box", "entity 'Variable Air Volume Box' may mean 'Variable Air Volume Box' (brick:VAV)"),
        ("koln", "entity 'koln' may mean 'Cologne' (Köln), 'Köln' (cologne water); write one by name"),
        ("Air Handlin Unit", "no entity named 'Air Handlin Unit'; nearest: 'Air Handling Unit' (brick:AHU)"),
        ("brick:AHUU", "no entity named 'brick:AHUU'; nearest: 'Air Handling Unit' (brick:AHU)"),
        ("Pariss", "no entity named 'Pariss'; nearest: 'Paris'"),
        ("zzzzqqqq", "no entity named 'zzzzqqqq'"),
        ("<>", "no entity named '<>'"),
        ("", "no entity named ''"),
        ("\udcff", "no entity named '\\udcff'; names are UTF-8"),
    ],
)
def test_an_error_names_the_choices_or_what_is_near(typed, message):
    for find in (NAMES.find, lambda text: NAMES.find_all(["Paris", text])):
        with pytest.raises(NameNotFoundError) as caught:
            find(typed)
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)


def test_choices_are_few():
    many = Names(Vocabulary([f"urn:{i}#x" for i in range(30)], "relation"), None, {})
    with pytest.raises(NameNotFoundError, match=r"^relation 'X' may mean 'urn:0#x', .* and 25 more; write "):
        many.find("X")


def test_what_is_shown():
    assert [NAMES.show(i) for i in range(len(ROWS))] == [
        "Air Handling Unit",
        "Variable Air Volume Box (brick:VAV)",
        "Variable Air Volume Box (ex:vav)",
        "ex:floor/Étage_1",
        "101",
        "ex:hall#101",
        "Paris",
        "Cologne",
        "Köln (cologne water)",
    ]
    assert Names(Vocabulary(["http://www.w3.org/1999/02/22-rdf-syntax-ns#type"], "relation"), None, {}).show(0) == (
        "rdf:type"
    )


WORDS = st.text("aAáB_ :/#<>", min_size=1, max_size=5)


@given(
    rows=st.dictionaries(WORDS, st.none() | WORDS.filter(str.strip), max_size=12),
    prefixes=st.dictionaries(st.sampled_from(["", "a", "A"]), WORDS, max_size=3),
)
def test_what_is_shown_means_the_same_id(rows, prefixes):
    names = Names(Vocabulary(rows, "entity"), pa.array(rows.values(), pa.string()), prefixes)
    shown = [names.show(i) for i in range(len(rows))]
    assert [names.find(text) for text in shown] == list(range(len(rows)))
    assert names.find_all(shown) == list(range(len(rows)))
    assert names.find_all(list(rows)) == list(range(len(rows)))
