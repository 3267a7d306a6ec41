"""Choose what is kept of the members that were trained: one of them, or an ensemble, with rules or without."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pairre.evaluation.ensemble import FittedEnsemble, fit_ensemble
from pairre.graph import Graph
from pairre.rules import Rule, mine
from pairre.runs import Run
from pairre.support.errors import PairREError

log = logging.getLogger("pairre")


@dataclass(frozen=True)
class Chosen:
    """What is kept: a member, or an ensemble of some of them."""

    what: str
    members: list[int]  # positions of the runs that were trained
    options: dict[str, float]  # validation MRR of everything that could have been kept
    ensemble: FittedEnsemble | None
    with_rules: bool = False


class _OutOfTimeError(Exception):
    """Ends the search for rules."""


def mine_in_time(graph: Graph, seconds_left: Callable[[], float]) -> list[Rule]:
    """Return the rules that train supports, or none if finding them takes longer than there is time."""

    def watch(_: float) -> None:
        if seconds_left() < 0:
            raise _OutOfTimeError

    try:
        watch(0.0)
        return mine(graph, progress=watch)
    except _OutOfTimeError:
        return []


def choose(
    runs: Sequence[Run],
    names: Sequence[str],
    rules: Sequence[Rule],
    alone: Sequence[float],
    seconds_left: Callable[[], float],
) -> Chosen:
    """Return the best of the members alone and of their ensembles, by validation MRR; of equal ones, the simplest.

    The MRR of an ensemble is that on triples which its weights were not fitted to. `alone` are the MRRs of the members
    in training, which count where there is no ensemble to compare them with. Without `seconds_left`, no more is tried
    with rules.
    """
    fits: dict[str, tuple[list[int], FittedEnsemble, bool]] = {}
    everyone = list(range(len(runs)))
    first = max(everyone, key=lambda m: alone[m])
    wanted = [(everyone, False)] if len(runs) > 1 else []
    if rules:
        wanted += [*([(everyone, True)] if len(runs) > 1 else []), ([first], True)]
    for members, with_rules in wanted:
        if with_rules and seconds_left() < 0:
            break
        label = " + ".join([*(names[m] for m in members), *[f"{len(rules):,} rules"] * with_rules])
        try:
            fits[label] = members, fit_ensemble([runs[m] for m in members], rules if with_rules else None), with_rules
        except PairREError as error:
            log.warning("%s: %s", label, error)
    singles = dict(zip(names, alone, strict=True))
    for members, fitted, _ in fits.values():
        singles |= {names[m]: mrr for m, mrr in zip(members, fitted.member_mrr, strict=False)}  # not that of rules
    simplest = sorted(fits, key=lambda label: len(fits[label][0]))
    options = {**singles, **{label: fits[label][1].left_out_mrr for label in simplest}}
    best = max(options, key=lambda label: options[label])
    if best in fits:
        return Chosen(best, fits[best][0], options, fits[best][1], fits[best][2])
    return Chosen(best, [list(names).index(best)], options, None)
