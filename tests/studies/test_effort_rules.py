"""Rules in an effort: those that name entities take part where there is time for them, now and at the end."""

import sys
from dataclasses import replace
from itertools import chain, repeat
from types import SimpleNamespace

import pytest
import torch

from pairre import check_run, evaluate, load_run, train, train_best
from pairre.evaluation.ensemble import FittedEnsemble
from pairre.models import EntityRules
from pairre.rules import mine
from pairre.settings import resolve
from pairre.studies.effort.candidates import Candidate
from pairre.studies.effort.choice import choose
from pairre.studies.effort.rules import answer_in_time, mine_in_time
from pairre.support.errors import RuleError

RULES = sys.modules["pairre.studies.effort.rules"]
SMALL = {"model.dim": 8, "train.batch": 32, "train.lr": 0.05}
NEVER = float("inf")


@pytest.fixture
def run(graph):
    return train(graph, resolve(graph, None, {**SMALL, "train.steps": 20}), device="cpu", progress=False)


@pytest.fixture
def asked(monkeypatch):
    """The clock, which queries of rules that name entities move by a millisecond each, and how many there were."""
    found, real = SimpleNamespace(now=0.0, queries=0), EntityRules.answers

    def answers(model, relations, anchors, side):
        found.queries += len(relations)
        found.now += 1e-3 * len(relations)
        return real(model, relations, anchors, side)

    monkeypatch.setattr(EntityRules, "answers", answers)
    monkeypatch.setattr(RULES, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def test_options_with_rules_have_those_of_both_kinds(run):
    rules = mine(run.graph)
    chosen = choose([run, run], ["one", "other"], rules, [0.5, 0.4], lambda: 1.0, 1.0)
    both = f" + {len(rules)} rules + entity rules"
    assert set(chosen.options) == {"one", "other", "one + other", f"one{both}", f"one + other{both}"}
    kept = chosen.ensemble.members
    assert chosen.with_mined
    assert [one.name for one in kept.rules] == ["rules", "entity-rules"]
    nothing_mined = choose([run], ["one"], [], [0.5], lambda: 1.0, 1.0)
    assert set(nothing_mined.options) == {"one", "one + entity rules"}


@pytest.mark.parametrize(
    ("first", "then", "entity_seconds", "said"),
    [
        ([], 1.0, NEVER, "one + 3 rules"),
        ([], 1.0, 2.0, "one + 3 rules"),
        ([9.0, 9.0], 1.0, 2.0, "one + 3 rules"),  # the first fit takes too long
        ([], -1.0, 0.0, None),
        ([9.0, 1.0], -1.0, 0.0, None),
    ],
    ids=["no time for their answers", "no time at the end", "slower than expected", "no time at all", "time runs out"],
)
def test_without_time_there_are_rules_of_one_kind_or_none(run, first, then, entity_seconds, said):
    rules = mine(run.graph)
    assert len(rules) == 3
    seconds = chain(first, repeat(then))
    chosen = choose([run], ["one"], rules, [0.5], lambda: next(seconds), entity_seconds)
    assert set(chosen.options) == {"one", said} - {None}


def test_an_option_that_was_in_time_stays(run):
    """There is no time for the second one; one with fewer rules would take what the first one needs."""
    of_first = 1 + 2 * 4  # at its begin, and after each side of each member
    seconds = chain([9.0] * of_first, repeat(1.0))
    chosen = choose([run, run], ["one", "other"], mine(run.graph), [0.5, 0.4], lambda: next(seconds), 2.0)
    assert [label for label in chosen.options if "rules" in label] == ["one + other + 3 rules + entity rules"]


def test_the_end_is_predicted_from_the_queries_of_validation(run, asked, monkeypatch):
    graph = run.graph
    in_fit, at_end = (
        len({(side, row[2 * side], row[1]) for row in triples.tolist() for side in (0, 1)})
        for triples in (graph.valid, torch.cat([graph.valid, graph.test]))
    )
    monkeypatch.setattr(RULES, "_AT_ONCE", 5)
    assert answer_in_time(graph, graph, lambda: 99.0) == pytest.approx(1e-3 * (at_end - in_fit), rel=0.1)
    assert asked.queries == in_fit
    choose([run], ["one"], [], [0.5], lambda: 1.0, 0.0)
    assert asked.queries == in_fit, "the fit asks nothing new"
    member = EntityRules(graph)
    for side in ("head", "tail"):
        member.answer_ahead(torch.cat([graph.valid, graph.test]), side)
    assert asked.queries == at_end
    held_out = replace(graph, valid=graph.valid[:0], train=torch.cat([graph.train, graph.valid]))
    only_test = answer_in_time(replace(graph), held_out, lambda: 99.0)
    assert only_test > 1e-3 * (at_end - in_fit), "nothing is known where train is another one"


def test_slow_answers_are_given_up_soon(run, asked, monkeypatch):
    monkeypatch.setattr(RULES, "_AT_ONCE", 5)
    assert answer_in_time(run.graph, run.graph, lambda: 0.04 - asked.now) == NEVER
    assert asked.queries <= 6
    assert answer_in_time(run.graph, run.graph, lambda: -1.0) == NEVER
    assert mine_in_time(run.graph, lambda: -1.0) == []
    asked.queries = 0
    monkeypatch.setattr(RULES, "is_huge", lambda _: True)
    assert answer_in_time(run.graph, run.graph, lambda: 99.0) == NEVER
    monkeypatch.setattr(RULES, "is_huge", lambda _: False)
    monkeypatch.setattr("pairre.models.rule_model._MAX_ENTITIES", 10)
    with pytest.raises(RuleError):
        EntityRules(run.graph)
    assert answer_in_time(run.graph, run.graph, lambda: 99.0) == NEVER
    assert asked.queries == 0


@pytest.mark.parametrize("held_out", [False, True], ids=["with validation", "held out"])
def test_the_run_has_rules_of_all_of_train(graph, tmp_path, monkeypatch, held_out):
    few = {"distance": [Candidate("distance 1", SMALL)]}
    monkeypatch.setattr("pairre.studies.effort.candidates.families", lambda _: few)
    monkeypatch.setattr("pairre.studies.effort.run.LEAST_SECONDS", 0.5)
    monkeypatch.setattr("pairre.studies.effort.run._Effort._seconds_left_for_rules", lambda _: 60.0)
    monkeypatch.setattr(FittedEnsemble, "left_out_mrr", property(lambda one: float(one.members.has_entity_rules)))
    whole = replace(graph, valid=graph.valid[: 0 if held_out else None])
    out = tmp_path / "run"
    found = train_best(whole, effort="quick", time=2.0, out=out, device="cpu", progress=False)
    opened = load_run(out, "cpu")
    for one in (found, opened):
        member = one.model.rule_members()[-1]
        assert isinstance(member, EntityRules)
        assert len(member.book.slots.other) == 2 * len(torch.unique(whole.train, dim=0))
    assert evaluate(opened, "test")["both"] == evaluate(found, "test")["both"]
    assert not any(report.fault for report in check_run(out))
