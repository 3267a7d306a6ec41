"""Predictions by name, against scores looked up one at a time, and what is left out of them."""

import csv
import json
from dataclasses import asdict, replace

import pyarrow.parquet as pq
import pytest
import torch

from pairre.graph import Graph, Vocabulary
from pairre.graph.annotations import Annotations, EntityTypes
from pairre.inference import answers as answers_module
from pairre.inference import predict, predict_many
from pairre.inference.answers import Choice
from pairre.inference.predict import find_queries, write_predictions
from pairre.models import PairRE
from pairre.runs import Run
from pairre.support.errors import NameNotFoundError, PairREError


@pytest.fixture
def run(graph, quick):
    model = PairRE(graph.num_entities, graph.num_relations, 5)
    model.initialise(0.5, 0)
    return Run(graph, quick, model.requires_grad_(False))


def score(run, answer):
    ids = [
        run.graph.entities.id(answer.head),
        run.graph.relations.id(answer.relation),
        run.graph.entities.id(answer.tail),
    ]
    return run.model.score(torch.tensor([ids]))[0].item()


@pytest.mark.parametrize(
    "given", [{"head": "e3", "relation": "next"}, {"relation": "beside", "tail": "e7"}, {"head": "e1", "tail": "e2"}]
)
@pytest.mark.parametrize("known", [True, False])
def test_answers_are_the_best_in_order(run, given, known):
    answers = predict(run, **given, k=1000, known=known, any=True)
    graph_triples = {t for s in ("train", "valid", "test") for t in run.graph.names(run.graph.split(s))}
    scores = [a.score for a in answers]
    assert scores == sorted(scores, reverse=True)
    assert [a.rank for a in answers] == list(range(1, len(answers) + 1))
    for a in answers:
        assert a.score == pytest.approx(score(run, a), abs=1e-5)
        assert all(getattr(a, member) == name for member, name in given.items())
        assert (a.known is not None) == ((a.head, a.relation, a.tail) in graph_triples)
    total = run.graph.num_relations if "relation" not in given else run.graph.num_entities
    place = {"head": 0, "relation": 1, "tail": 2}
    num_known = sum(all(triple[place[m]] == name for m, name in given.items()) for triple in graph_triples)
    assert len(answers) == (total if known else total - num_known)
    assert any(a.known for a in answers) == known


def test_the_split_of_a_known_triple_is_named(run):
    h, r, t = next(run.graph.names(run.graph.valid[:1]))
    answers = predict(run, head=h, relation=r, k=100, known=True)
    assert next(a.known for a in answers if a.tail == t) == "valid"


def test_k_limits_the_answers(run):
    assert len(predict(run, head="e0", relation="next", k=3)) == 3


def test_unknown_names_get_the_nearest(run):
    with pytest.raises(NameNotFoundError, match="no entity named 'e1000'; nearest: 'e10'"):
        predict(run, head="e1000", relation="next")
    with pytest.raises(NameNotFoundError, match="no relation named 'nxt'; nearest: 'next'"):
        predict(run, head="e1", relation="nxt")


@pytest.mark.parametrize("given", [{}, {"head": "e1"}, {"head": "e1", "relation": "next", "tail": "e2"}])
def test_two_members_must_be_given(run, given):
    with pytest.raises(PairREError, match="give two of head, relation and tail"):
        predict(run, **given)
    with pytest.raises(PairREError, match="k must be 1 or more"):
        predict(run, head="e1", relation="next", k=0)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("known", [True, False])
def test_scores_that_are_not_finite_are_refused(run, value, known):
    """There is no order among them, and a known triple could come first."""
    run.model.entity[5] = value
    with pytest.raises(PairREError, match="scores are not finite numbers"):
        predict(run, head="e3", relation="next", known=known)


def test_a_known_triple_that_scores_nan_is_left_out(run):
    run.graph.known.side("tail")
    head, relation, tail = next(run.graph.names(run.graph.train[:1]))
    run.model.entity[run.graph.entities.id(tail)] = torch.nan
    answers = predict(run, head=head, relation=relation, k=1000, any=True)
    assert tail not in {answer.tail for answer in answers}
    assert len(answers) == run.graph.num_entities - int(run.graph.known.side("tail").count(run.graph.train[:1]))


# --- what makes sense ---


@pytest.fixture
def world(quick):
    """Cities in countries, one relation with a loop; the model is random, so that it proposes anything."""
    names = [*(f"city{i}" for i in range(8)), *(f"country{i}" for i in range(4))]
    located = [[city, 0, 8 + city % 4] for city in range(8)]
    twinned = [[city, 1, (city + 3) % 8] for city in range(8)]
    knows = [[8, 2, 8], [8, 2, 9], [9, 2, 10]]
    train = torch.tensor(located + twinned + knows, dtype=torch.int32)
    types = EntityTypes(
        Vocabulary(["city", "country"], "type"),
        torch.arange(12, dtype=torch.int32),
        torch.tensor([0] * 8 + [1] * 4, dtype=torch.int32),
    )
    relations = Vocabulary(["located_in", "twinned_with", "knows"], "relation")
    graph = Graph(
        *("world", Vocabulary(names, "entity"), relations, train, train[:0], train[:0]),
        annotated=Annotations(entity_types=types),
    )
    model = PairRE(12, 3, 5)
    model.initialise(0.5, 0)
    return Run(graph, quick, model.requires_grad_(False))


def tails(answers):
    return {answer.tail for answer in answers}


def test_answers_that_make_no_sense_are_left_out_and_counted(world):
    countries, cities = ({f"country{i}" for i in range(4)}, {f"city{i}" for i in range(8)})
    located = predict(world, head="city1", relation="located_in", k=50)
    assert tails(located) == countries - {"country1"}
    assert located.num_implausible == 8
    twinned = predict(world, head="city1", relation="twinned_with", k=50)
    assert tails(twinned) == cities - {"city1", "city4"}
    assert twinned.num_implausible == 5
    every = predict(world, head="city1", relation="twinned_with", k=50, any=True)
    assert tails(every) == (cities | countries) - {"city4"}
    assert every.num_implausible == 0
    assert "country0" in tails(predict(world, head="country0", relation="knows", k=50, known=True))


def test_relations_between_two_entities_are_plausible_too(world):
    found = predict(world, head="city0", tail="city1", k=50)
    assert [answer.relation for answer in found] == ["twinned_with"]
    assert found.num_implausible == 2
    assert len(predict(world, head="city0", tail="city1", k=50, any=True)) == 3
    assert predict(world, head="city0", tail="city0") == []


def test_candidates_and_types_restrict_the_answers(world):
    only = ["city2", "country3", "city5"]
    found = predict(world, head="city1", relation="twinned_with", candidates=only)
    assert tails(found) == {"city2", "city5"}
    assert found.num_implausible == 1
    assert tails(predict(world, head="city1", relation="twinned_with", candidates=only, any=True)) == set(only)
    assert predict(world, head="city1", relation="twinned_with", type="country") == []
    typed = predict(world, head="city1", relation="twinned_with", type="country", any=True, k=50)
    assert tails(typed) == {f"country{i}" for i in range(4)}
    with pytest.raises(NameNotFoundError, match="no entity named 'city22'; nearest"):
        predict(world, head="city1", relation="twinned_with", candidates=["city22"])
    with pytest.raises(NameNotFoundError, match="no type named 'town'"):
        predict(world, head="city1", relation="twinned_with", type="town")
    with pytest.raises(PairREError, match="candidates are entities"):
        predict(world, head="city1", tail="city2", candidates=only)


def test_a_type_needs_types(run):
    with pytest.raises(PairREError, match="no types of entities are known"):
        predict(run, head="e1", relation="next", type="city")


# --- many at once ---


@pytest.fixture
def queries(run):
    rows = [(h, r, None) for h, r, _ in run.graph.names(run.graph.test)]
    rows += [("", r, t) for _, r, t in run.graph.names(run.graph.valid)]
    return [*rows, ("e1", None, "e2"), ("e30", None, "e3")]


@pytest.mark.parametrize("choice", [{}, {"known": True, "k": 3}, {"any": True}, {"candidates": ["e3", "e17", "e30"]}])
def test_many_queries_get_the_answers_of_each(run, queries, choice, monkeypatch):
    monkeypatch.setattr(answers_module, "_MAX_BATCH", 7)
    queries = queries if "candidates" not in choice else queries[:-2]
    together = predict_many(run, queries, **choice)
    for (h, r, t), answers in zip(queries, together, strict=True):
        alone = predict(run, head=h or None, relation=r or None, tail=t or None, **choice)
        assert answers.num_implausible == alone.num_implausible
        assert answers.triples.tolist() == alone.triples.tolist()
        plain = [[replace(a, score=0, probability=0) for a in found] for found in (answers, alone)]
        assert plain[0] == plain[1]
        assert [a.score for a in answers] == pytest.approx([a.score for a in alone], abs=1e-5)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_files_hold_the_answers_of_the_list(run, queries, ending, tmp_path):
    out = tmp_path / f"answers{ending}"
    labels = ["plain" if i % 2 else None for i in range(run.graph.num_entities)]
    labelled = replace(run.graph, annotated=Annotations(entity_labels=Vocabulary(labels, "label").names))
    run = replace(run, graph=labelled)
    found = find_queries(run.graph, [("e1000", "next", None), *queries], skip_unknown=True)
    assert found.num_unknown == 1
    num = write_predictions(run, found, out, Choice(k=3, known=True))
    if ending == ".parquet":
        rows = pq.read_table(out).to_pylist()
    elif ending == ".jsonl":
        rows = [json.loads(line) for line in out.read_text().splitlines()]
    else:
        with out.open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t" if ending == ".tsv" else ","))
    expected = [
        {"query": number, **asdict(answer)}
        for number, answers in enumerate(predict_many(run, queries, k=3, known=True), start=2)
        for answer in answers
    ]
    assert len(rows) == num == len(expected)
    for row, answer in zip(rows, expected, strict=True):
        assert set(row) == set(answer)
        assert float(row["score"]) == pytest.approx(answer["score"], abs=1e-5)
        for key in ("head", "relation", "tail", "known", "head_label", "tail_label"):
            assert row[key] == (answer[key] if answer[key] is not None or ending in (".jsonl", ".parquet") else "")
        assert int(row["query"]) == answer["query"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("e1", "next", None), ("e1", "next", "e2")], "row 2: two of head, relation and tail expected"),
        ([("e1", None, None)], "row 1: two of head"),
        ([("e1", "next")], "row 1: .*head, relation and tail expected"),
        ([("e1", "next", None), ("e77", "next", None)], "row 2: no entity named 'e77'; nearest"),
    ],
)
def test_queries_that_are_none_are_named_by_their_row(run, rows, message):
    with pytest.raises(PairREError, match=message):
        predict_many(run, rows)


def test_an_error_leaves_no_file(run, queries, tmp_path):
    run.model.entity[5] = torch.nan
    with pytest.raises(PairREError, match="not finite"):
        write_predictions(run, find_queries(run.graph, queries), tmp_path / "a.csv", Choice())
    with pytest.raises(PairREError, match=r"unknown ending; .*\.parquet"):
        write_predictions(run, find_queries(run.graph, queries), tmp_path / "a.xlsx", Choice())
    assert not list(tmp_path.iterdir())
