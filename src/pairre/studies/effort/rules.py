"""Find the rules that an effort has time for: those that are mined, and those that name entities.

What the latter answer takes a core some milliseconds for each query, when weights are fitted and again at the end, when
the run is ranked. So an effort has them only if the queries of both, at the speed of those that were answered, fit into
its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from pairre.evaluation.calibration import is_huge
from pairre.evaluation.ensemble import fitted_on
from pairre.evaluation.ranking import SIDES
from pairre.graph import Graph
from pairre.graph.index import COLUMN
from pairre.models import EntityRules
from pairre.rules import Rule, mine
from pairre.support.errors import RuleError
from pairre.support.randomness import generator

SecondsLeft = Callable[[], float]
_AT_ONCE = 1 << 10  # queries, after which the time is looked at


class OutOfTimeError(Exception):
    """Ends what is done with rules."""


def stop_in_time(seconds_left: SecondsLeft, needed: float = 0.0) -> Callable[[float], None]:
    """Return a callback that raises an OutOfTimeError, here already, once fewer seconds are left than are needed."""

    def watch(_: float) -> None:
        if seconds_left() < needed:
            raise OutOfTimeError

    watch(0)
    return watch


def mine_in_time(graph: Graph, seconds_left: SecondsLeft) -> list[Rule]:
    """Return the rules that train supports, or none if finding them takes longer than there is time."""
    try:
        return mine(graph, progress=stop_in_time(seconds_left))
    except OutOfTimeError:
        return []


def answer_in_time(searched: Graph, whole: Graph, seconds_left: SecondsLeft) -> float:
    """Return the seconds that rules that name entities take at the end, infinity if there is no time for them.

    What the weights of an ensemble are fitted on is answered here, as far as there is time for that and for the end,
    when the triples of `whole` are ranked. Answers are kept with the graph that is searched.
    """
    if is_huge(searched) or seconds_left() < 0:
        return float("inf")
    try:
        model = EntityRules(searched)
    except RuleError:  # there are too many entities
        return float("inf")
    asked = _queries(searched.valid[fitted_on(len(searched.valid))])
    at_end = len(_queries(torch.cat([whole.valid, whole.test]).long()))
    if len(whole.valid):  # otherwise other triples of train answer at the end
        at_end -= len(asked)
    _answer(model, asked[:1])  # which compiles kernels
    answered, started, per_query = 0, time.monotonic(), 0.0
    for part in torch.split(asked, _AT_ONCE):
        _answer(model, part)
        answered += len(part)
        per_query = (time.monotonic() - started) / answered
        if per_query * (len(asked) - answered + at_end) > seconds_left():
            return float("inf")
    return per_query * at_end


def _queries(triples: Tensor) -> Tensor:
    """Return the distinct queries of triples in random order: [Q, 3] numbers of the side, the anchor and relation."""
    sides = [
        torch.stack([torch.full((len(triples),), number), triples[:, 2 - COLUMN[side]], triples[:, 1]], 1)
        for number, side in enumerate(SIDES)
    ]
    found: Tensor = torch.unique(torch.cat(sides), dim=0)
    return found[torch.randperm(len(found), generator=generator(0, "queries"))]


def _answer(model: EntityRules, queries: Tensor) -> None:
    """Answer queries, so that their answers are known."""
    for number, side in enumerate(SIDES):
        model.answer_ahead(queries[queries[:, 0] == number][:, [1, 2, 1]], side)
