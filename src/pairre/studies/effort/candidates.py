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
    seconds: float  # at least
    trainings: float = 0  # times that a training with the default settings takes


EFFORTS: dict[EffortName, Effort] = {
    "quick": Effort(families=3, variants=2, members=2, seconds=50),
    "standard": Effort(families=4, variants=4, members=2, seconds=90, trainings=2),
    "best": Effort(families=None, variants=None, members=4, seconds=600, trainings=10),
}


@dataclass(frozen=True)
class Candidate:
    """A model with settings: those in which it differs from the defaults for a graph."""

    name: str  # of its family, with the number of the variant
    settings: dict[str, Any]

    @property
    def family(self) -> str:
        """The name of its family."""
        return self.name.partition(" ")[0]


@cache
def families() -> dict[str, list[Candidate]]:
    """Return every candidate by family, in the order of `candidates.toml`."""
    text = (resources.files(__package__) / "candidates.toml").read_text(encoding="utf-8")
    return {
        family: [
            Candidate(f"{family} {number}", {**values.get("settings", {}), **variant})
            for number, variant in enumerate(values["variants"], 1)
        ]
        for family, values in tomllib.loads(text).items()
    }


def candidates(effort: Effort) -> list[Candidate]:
    """Return what an effort tries, the most promising first: the first variant of each family, then the second."""
    chosen = [variants[: effort.variants] for variants in list(families().values())[: effort.families]]
    longest = max(map(len, chosen))
    return [variants[n] for n in range(longest) for variants in chosen if n < len(variants)]
