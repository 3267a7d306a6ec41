"""Choose what is kept of the members that were trained: one of them, or an ensemble, with rules or without."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pairre.evaluation.ensemble import FittedEnsemble, fit_ensemble
from pairre.rules import Rule
from pairre.runs import Run
from pairre.studies.effort.rules import OutOfTimeError, SecondsLeft, stop_in_time
from pairre.support.errors import PairREError

log = logging.getLogger("pairre")


@dataclass(frozen=True)
class Chosen:
    """What is kept: a member, or an ensemble of some of them."""

    what: str
    members: list[int]  # positions of the runs that were trained
    options: dict[str, float]  # validation MRR of everything that could have been kept
    ensemble: FittedEnsemble | None
    with_mined: bool = False  # rules, beside those that name entities


def choose(
    runs: Sequence[Run],
    names: Sequence[str],
    rules: Sequence[Rule],
    alone: Sequence[float],
    seconds_left: SecondsLeft,
    entity_seconds: float,
) -> Chosen:
    """Return the best of the members alone and of their ensembles, by validation MRR; of equal ones, the simplest.

    The MRR of an ensemble is that on triples which its weights were not fitted to. `alone` are the MRRs of the members
    in training, which count where there is no ensemble to compare them with. Rules that name entities take part if
    they leave `entity_seconds` for the end, otherwise those that were mined; without `seconds_left`, no more is tried
    with either.
    """
    fits: dict[str, tuple[list[int], FittedEnsemble, bool]] = {}

    def add(
        members: list[int], mined: Sequence[Rule], entity_rules: bool, progress: Callable[[float], None] | None
    ) -> None:
        said = [f"{len(mined):,} rules"] * bool(mined) + ["entity rules"] * entity_rules
        label = " + ".join([*(names[m] for m in members), *said])
        chosen = [runs[m] for m in members]
        try:
            fitted = fit_ensemble(chosen, mined or None, progress=progress, entity_rules=entity_rules)
            fits[label] = members, fitted, bool(mined)
        except PairREError as error:
            log.warning("%s: %s", label, error)

    everyone = list(range(len(runs)))
    together = [everyone] if len(runs) > 1 else []
    for members in together:
        add(members, [], False, None)
    without_rules = len(fits)
    for entity_rules, needed in [(True, entity_seconds), *[(False, 0.0)] * bool(rules)]:
        with suppress(OutOfTimeError):
            for members in [*together, [max(everyone, key=lambda m: alone[m])]]:
                add(members, rules, entity_rules, stop_in_time(seconds_left, needed))
        if len(fits) > without_rules:
            break
    singles = dict(zip(names, alone, strict=True))
    for members, fitted, _ in fits.values():
        singles |= {names[m]: mrr for m, mrr in zip(members, fitted.member_mrr, strict=False)}  # not that of rules
    simplest = sorted(fits, key=lambda label: len(fits[label][0]))
    options = {**singles, **{label: fits[label][1].left_out_mrr for label in simplest}}
    best = max(options, key=lambda label: options[label])
    if best in fits:
        return Chosen(best, fits[best][0], options, fits[best][1], fits[best][2])
    return Chosen(best, [list(names).index(best)], options, None)
