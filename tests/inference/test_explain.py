"""Reasons for answers: rules against a walk over all facts, refits against a model with another row, all by name."""

import itertools
import json
from dataclasses import replace

import pytest
import torch

from pairre.graph import Graph, Vocabulary
from pairre.inference import explain
from pairre.inference.firing import Fact, firing_rules
from pairre.inference.necessary import Answer, FactLoss, dependence, facts_of
from pairre.models import EntityRules, model_class
from pairre.rules import KINDS, Rule, entity_rules, measure_pair, mine
from pairre.rules.entity_rules import EntityRuleBook
from pairre.runs import Run
from pairre.settings import from_values
from pairre.support.errors import NameNotFoundError, PairREError
from pairre.training import train
from pairre.training.losses import SEPARABLE


def random_graph(seed=0, num_entities=12, num_relations=4, num=90):
    draw = torch.Generator().manual_seed(seed)
    sizes = (num_entities, num_relations, num_entities)
    triples = torch.stack([torch.randint(size, (num,), generator=draw) for size in sizes], 1).to(torch.int32)
    return Graph(
        "random",
        Vocabulary([f"e{i}" for i in range(num_entities)], "entity"),
        Vocabulary([f"r{i}" for i in range(num_relations)], "relation"),
        triples[10:].contiguous(),
        triples[:5].contiguous(),
        triples[5:10].contiguous(),
    )


def random_run(graph, name="pairre", loss="self-adversarial"):
    recipe = from_values({"loss": {"name": loss, "margin": 1.0}, "model": {"name": name, "dim": 8}})
    model = model_class(name)(graph.num_entities, graph.num_relations, 8)
    model.attach(graph, 1.0, 0)
    model.initialise(1.0, 5)
    model.init_from_graph(graph, 0)
    return Run(graph, recipe, model.requires_grad_(False))


# --- rules ---


def walk(facts, rule, head, tail):
    """All lists of facts that make a body hold, by comparing every pair of facts."""
    facts = {Fact(*names) for names in facts}
    bodies = [rule.body, (rule.conclusion,)] if rule.kind == "equivalence" else [rule.body]
    own = Fact(head, rule.conclusion, tail)
    if rule.kind == "composition":
        ways = {
            (a, b)
            for a, b in itertools.product(facts, facts)
            if (a.head, a.relation, b.relation, b.tail) == (head, *rule.body, tail) and a.tail == b.head
        }
    elif rule.kind in ("inverse", "symmetry"):
        ways = {(Fact(tail, rule.body[0], head),)} & {(fact,) for fact in facts}
    else:
        ways = {(Fact(head, body[0], tail),) for body in bodies} & {(fact,) for fact in facts}
    return {way for way in ways if own not in way}


def test_rules_fire_by_the_facts_that_a_walk_finds():
    graph = random_graph()
    facts = list(graph.names(graph.train))
    rules = [Rule(("r0", "r1"), "r2", "composition", 0.9), Rule(("r1",), "r2", "subrelation", 0.8)]
    rules += [Rule(("r3",), "r2", "inverse", 0.7), Rule(("r2",), "r2", "symmetry", 0.6)]
    rules += [Rule(("r1",), "r2", "equivalence", 0.5), Rule(("r2", "r2"), "r2", "composition", 0.4)]
    rules += [Rule(("gone",), "r2", "subrelation", 0.3), Rule(("r2",), "r1", "subrelation", 0.3)]
    total = 0
    for head, tail in itertools.product(range(12), range(12)):
        found = firing_rules(graph, head, 2, tail, rules)
        expected = {str(rule): walk(facts, rule, f"e{head}", f"e{tail}") for rule in rules if rule.conclusion == "r2"}
        assert {one.rule: one.num_ways for one in found} == {name: len(ways) for name, ways in expected.items() if ways}
        for one in found:
            assert set(one.ways) <= expected[one.rule]
            assert len(one.ways) == min(5, one.num_ways)
        total += len(found)
    assert total > 100


def test_an_equivalence_fires_in_both_directions():
    graph = random_graph()
    rule = Rule(("r1",), "r2", "equivalence", 0.5)
    head, _, tail = graph.train[graph.train[:, 1] == 2][0].tolist()
    assert firing_rules(graph, head, 1, tail, [rule])[0].ways[0][0].relation == "r2"


def test_measuring_one_pair_gives_what_mining_gives():
    graph = random_graph(num=250)
    kinds = [kind for kind in KINDS if kind != "equivalence"]
    every = mine(graph, kinds, min_support=2, min_head_coverage=0, min_confidence=0.1)
    some = 0
    for head, relation, tail in itertools.product((0, 7), range(4), (0, 3, 5)):
        expected = [rule for rule in every if firing_rules(graph, head, relation, tail, [rule])]
        assert measure_pair(graph, head, relation, tail) == expected
        some += len(expected)
    assert some > 20


# --- facts ---


@pytest.mark.parametrize("name", ["pairre", "distmult", "transr", "rotate"])
@pytest.mark.parametrize("side", ["head", "tail"])
def test_how_an_answer_stands_is_what_all_scores_say(name, side):
    graph = random_graph()
    run, triple = random_run(graph, name), graph.test[1].long()
    column = 0 if side == "head" else 2
    for of, place in (("head", 0), ("tail", 2)):
        rows = run.model.entity[:3].clone()
        standing = Answer(run, triple, side).stand({**Answer(run, triple, side).rows(), of: rows})
        for i, row in enumerate(rows):
            other = random_run(graph, name)
            other.model.entity[triple[place]] = row
            scores = other.model.score_all(triple[None], side)[0]
            others = torch.zeros(12, dtype=torch.bool)
            others[graph.domains.plausible(int(triple[1]), side)] = True
            others[graph.known.side(side).known(triple[None])[1]] = False
            if not graph.domains.has_loops(int(triple[1])):
                others[triple[2 - column]] = False
            true = scores[triple[column]]
            # A candidate that is the changed entity itself would have changed, too.
            others[triple[place]] = False
            if of != side and bool(Answer(run, triple, side).others[triple[place]]):
                continue
            assert standing.score[i] == pytest.approx(float(true), abs=1e-5)
            assert standing.rank[i] == 1 + (scores[others] > true).sum()
            share = true - torch.cat([scores[others], true[None]]).logsumexp(0)
            assert standing.log_share[i] == pytest.approx(float(share), abs=1e-5)


@pytest.mark.parametrize("loss", ["self-adversarial", "cross-entropy", "margin", "logistic", "k-vs-all"])
@pytest.mark.parametrize("name", ["pairre", "transr"])
def test_gradients_of_facts_are_those_of_their_loss(name, loss):
    """The mean gradient follows finite differences of the loss, and is the mean of the gradients of each fact."""
    graph = random_graph()
    run = random_run(graph, name, loss)
    facts = facts_of(graph, 3, torch.tensor([0, 0, 0]))
    assert {tuple(fact) for fact in facts.tolist()} == {tuple(t) for t in graph.train.tolist() if 3 in (t[0], t[2])}
    losses = FactLoss(run, 3, facts)
    row = run.model.entity[3:4].clone()
    each = losses.gradients(row)
    assert torch.allclose(losses.mean_gradients(torch.ones(1, len(facts)))(row)[0], each.mean(0), atol=1e-5)
    weights = torch.ones(2, len(facts))
    weights[1, 0] = 0
    assert torch.allclose(losses.mean_gradients(weights)(row.repeat(2, 1))[1], each[1:].mean(0), atol=1e-5)
    losses.at_once = 3
    assert torch.allclose(losses.gradients(row), each, atol=1e-5)
    if loss == "self-adversarial":
        return  # its weights of negatives are constants of the gradient

    def value(moved):
        return float(losses.value(moved, losses.terms(torch.ones(1, 1), losses.facts[:1])))

    step = 1e-2 * torch.nn.functional.normalize(each[:1], dim=1)
    difference = value(row + step) - value(row - step)
    assert difference == pytest.approx(float(2 * (step * each[0]).sum()), rel=0.05, abs=1e-4)


@pytest.mark.parametrize("loss", sorted(SEPARABLE))
@pytest.mark.parametrize("name", ["pairre", "transr"])
def test_gradients_of_a_separable_loss_are_those_of_the_whole(name, loss):
    graph = random_graph(num=300)
    run, facts = random_run(graph, name, loss), facts_of(graph, 3, torch.tensor([0, 0, 0]))
    assert (facts[:, 0] == facts[:, 2]).any(), "a fact of the entity with itself"
    rows = run.model.entity[3:5].clone()
    weights = torch.rand(2, len(facts), generator=torch.Generator().manual_seed(0))
    parts, whole = FactLoss(run, 3, facts), FactLoss(run, 3, facts)
    assert parts.separable
    whole.separable = False
    assert torch.allclose(parts.mean_gradients(weights)(rows), whole.mean_gradients(weights)(rows), atol=1e-6)


@pytest.mark.parametrize("name", ["pairre", "conve", "distmult", "kg2e", "ote", "rgcn", "simple", "transd"])
def test_models_of_all_kinds_can_be_explained(name):
    graph = random_graph()
    found = explain(random_run(graph, name), "e1", "r2", "e4", k=3)
    assert found.refits["head"].num_facts == len(facts_of(graph, 1, torch.tensor([1, 2, 4])))
    assert all(fact.fall > 0 and "e1" in (fact.fact.head, fact.fact.tail) for fact in found.facts if fact.of == "head")
    json.dumps(found.as_dict(), allow_nan=False)


@pytest.fixture(scope="module")
def trained():
    """Two countries of ten cities each; a city's country follows from its river and nothing else."""
    triples, names = [], [f"city{i}" for i in range(20)] + ["river0", "river1", "land0", "land1", "x0", "x1", "x2"]
    for i in range(20):
        triples += [(i, 0, 20 + i % 2), (i, 1, 22 + i % 2), (i, 2, 24 + i % 3)]
    held = [(0, 1, 22), (1, 1, 23)]
    graph = Graph(
        "rivers",
        Vocabulary(names, "entity"),
        Vocabulary(["on", "in", "likes"], "relation"),
        torch.tensor([t for t in triples if t not in held], dtype=torch.int32),
        torch.tensor(held, dtype=torch.int32),
        torch.zeros(0, 3, dtype=torch.int32),
    )
    settings = ["model.dim=16", "train.steps=300", "train.lr=0.02", "loss.margin=4", "sampling.negatives=16"]
    return train(graph, overrides=settings, progress=False, device="cpu")


def test_the_fact_that_an_answer_follows_from_is_named_first(trained):
    for city, number in (("city0", 0), ("city1", 1)):
        found = explain(trained, city, "in", f"land{number}")
        assert found.rank == 1
        assert found.known == "valid"
        [first] = [fact for fact in found.facts if fact.of == "head"][:1]
        assert first.fact == Fact(city, "on", f"river{number}")
        assert first.score < found.refits["head"].score
        assert [fact.fall for fact in found.facts] == sorted((fact.fall for fact in found.facts), reverse=True)
        assert found.similar[0].fact.tail == f"land{number}"
        assert found.similar[0].known == "train"
        assert found == explain(trained, city, "in", f"land{number}")


def test_an_entity_with_more_facts_than_are_compared(trained, monkeypatch):
    monkeypatch.setattr("pairre.inference.necessary.MOST_FACTS", 6)
    monkeypatch.setattr("pairre.inference.necessary.MOST_REFITS", 3)
    answer = Answer(trained, torch.tensor([0, 1, 22]), "tail")
    found = dependence(answer, "tail")
    assert (found.num_facts, found.num_compared, len(found.facts)) == (9, 6, 3)
    known = {tuple(fact) for fact in facts_of(trained.graph, 22, answer.triple).tolist()}
    assert {tuple(fact) for fact in found.facts.tolist()} <= known


def test_an_entity_without_other_facts(trained):
    graph = trained.graph
    lonely = replace(trained, graph=replace(graph, train=graph.train[(graph.train[:, 0] != 0)]))
    found = explain(lonely, "city0", "in", "land0")
    assert found.refits["head"].num_facts == 0
    assert all(fact.of == "tail" for fact in found.facts)


def test_rules_can_be_given(trained, tmp_path):
    rule = Rule(("on", "in"), "in", "composition", 0.5)
    assert explain(trained, "city0", "in", "land0", rules=[rule]).rules == []
    assert explain(trained, "city0", "in", "land0", rules=[Rule(("likes",), "in", "subrelation", 0.5)]).rules == []
    graph = trained.graph
    extra = torch.tensor([[20, 1, 22]], dtype=torch.int32)
    run = replace(trained, graph=replace(graph, train=torch.cat([graph.train, extra])))
    [fired] = explain(run, "city0", "in", "land0", rules=[rule]).rules
    assert fired.ways == [(Fact("city0", "on", "river0"), Fact("river0", "in", "land0"))]


def people():
    names, relations = [*(f"p{i}" for i in range(9)), "Paris", "France"], ["born in", "citizen of"]
    facts = torch.tensor([[i, 0, 9] for i in range(9)] + [[i, 1, 10] for i in range(8)], dtype=torch.int32)
    return Graph("people", Vocabulary(names, "entity"), Vocabulary(relations, "relation"), facts, facts[:0], facts[:0])


def test_rules_that_name_entities_are_told_with_the_facts_that_they_rest_on():
    run = random_run(people())
    rules = {rule.rule: rule for rule in explain(run, "p8", "citizen of", "France").rules}
    fired = rules["born in(x, Paris) ⇒ citizen of(x, France)"]
    assert (fired.kind, fired.support, fired.num_ways) == ("entity", 8, 1)
    assert fired.confidence == pytest.approx(8 / 14)
    assert fired.ways == [(Fact("p8", "born in", "Paris"),)]
    other = explain(run, "p7", "citizen of", "France").rules
    assert all(Fact("p7", "citizen of", "France") not in way for rule in other for way in rule.ways)
    anyone = rules["born in(x, y) ⇒ citizen of(x, France)"]
    assert anyone.ways == [(Fact("p8", "born in", "Paris"),)]


def test_on_a_large_graph_rules_that_name_entities_are_told_if_the_run_has_them(monkeypatch):
    monkeypatch.setattr(entity_rules, "_MAX_QUICK", 16)
    run = random_run(people())
    assert "entity" not in {rule.kind for rule in explain(run, "p8", "citizen of", "France").rules}
    member = EntityRules(run.graph)
    assert "entity" in {rule.kind for rule in explain(run, "p8", "citizen of", "France").rules}
    assert member.book is EntityRuleBook.of(run.graph)


def test_what_makes_no_sense_is_refused(trained):
    with pytest.raises(NameNotFoundError, match="city99"):
        explain(trained, "city99", "in", "land0")
    for options, words in (({"side": "relation"}, "head, tail"), ({"k": 0}, "k must be 1")):
        with pytest.raises(PairREError, match=words):
            explain(trained, "city0", "in", "land0", **options)
    broken = random_run(trained.graph)
    broken.model.entity[0] = torch.nan
    with pytest.raises(PairREError, match="diverged"):
        explain(broken, "city0", "in", "land0")
