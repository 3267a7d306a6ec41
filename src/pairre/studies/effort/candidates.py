"""The candidates: which models with which settings are tried, and how many of them each effort tries."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

EffortName = Literal["quick", "standard", "best"]


@dataclass(frozen=True)
class Effort:
    """How much is tried and trained, and how long it may take unless a time is given."""

    families: int | None  # None: all
    variants: int | None  # of each family
    members: int  # that are trained in full, at most
    seconds: float  # at least, on a CPU
    seconds_on_gpu: float
    trainings: float = 0  # times that a training with the default settings takes, with the start of its process


EFFORTS: dict[EffortName, Effort] = {
    "quick": Effort(families=3, variants=2, members=2, seconds=50, seconds_on_gpu=10),
    "standard": Effort(families=4, variants=4, members=2, seconds=90, seconds_on_gpu=10, trainings=2),
    "best": Effort(families=None, variants=None, members=4, seconds=600, seconds_on_gpu=60, trainings=10),
}


@dataclass(frozen=True)
class Candidate:
    """A model with settings: those in which it differs from the defaults for a graph."""

    name: str  # of its family, with the number of the variant
    settings: dict[str, Any]
    instead_of: str = ""  # a family that makes this one superfluous where it can be tried
    widest: int = 0  # features that it may be given where its training has time for them

    @property
    def family(self) -> str:
        """The name of its family."""
        return self.name.partition(" ")[0]


@cache
def families(on_gpu: bool) -> dict[str, list[Candidate]]:
    """Return every candidate for a kind of device by family, in the order of `candidates.toml`."""
    text = (resources.files(__package__) / "candidates.toml").read_text(encoding="utf-8")
    found: dict[str, list[Candidate]] = {}
    for family, values in tomllib.loads(text).items():
        there = values.get("gpu", {}) if on_gpu else {}
        settings = values.get("settings", {}) | there.get("settings", {})
        more = {"instead_of": values.get("instead_of", ""), "widest": there.get("widest", 0)}
        variants = there.get("variants", values["variants"])
        found[family] = [
            Candidate(f"{family} {number}", settings | variant, **more) for number, variant in enumerate(variants, 1)
        ]
    return found


def candidates(effort: Effort, on_gpu: bool) -> list[Candidate]:
    """Return what an effort tries, the most promising first: the first variant of each family, then the second.

    A family beyond the second begins later, since little time is better spent on more variants of the first two.
    """
    chosen = [variants[: effort.variants] for variants in list(families(on_gpu).values())[: effort.families]]
    places = [
        (number + max(0, place - 1), place, one) for place, of in enumerate(chosen) for number, one in enumerate(of)
    ]
    return [one for _, _, one in sorted(places, key=lambda found: found[:2])]


def best_of_families(ordered: list[Candidate]) -> list[Candidate]:
    """Return the first candidate of each family."""
    found: dict[str, Candidate] = {}
    for one in ordered:
        found.setdefault(one.family, one)
    return list(found.values())
