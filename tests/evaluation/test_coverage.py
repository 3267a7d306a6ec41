"""How many answers are needed: against brute force, the promised coverage on facts never seen, and what is refused."""

import math
from dataclasses import replace

import pytest
import torch

import pairre
from conftest import QUICK, planted_graph
from pairre.evaluation.coverage import _ranks, answers_needed
from pairre.support.errors import PairREError


@pytest.fixture(scope="module")
def run():
    """A quick run on a graph of which most is held out, so that a group of ranks is large enough."""
    graph = planted_graph(120)
    triples = torch.cat([graph.train, graph.valid, graph.test])
    graph = replace(graph, train=triples[:160], valid=triples[160:320], test=triples[320:])
    return pairre.train(graph, QUICK, progress=False, device="cpu")


@pytest.mark.parametrize("side", ["head", "tail"])
def test_ranks_are_those_of_brute_force(run, side):
    graph, column = run.graph, 0 if side == "head" else 2
    known = set(map(tuple, torch.cat([graph.train, graph.valid, graph.test]).tolist()))
    triples = graph.valid.long()[:40]
    for triple, found in zip(triples.tolist(), _ranks(run, triples, side).tolist(), strict=True):
        candidates = graph.domains.plausible(triple[1], side).tolist()
        rivals = []
        for entity in candidates:
            rival = [entity if i == column else member for i, member in enumerate(triple)]
            if tuple(rival) not in known and rival[0] != rival[2]:
                rivals.append(rival)
        scores = run.model.score(torch.tensor([triple, *rivals]), side)
        expected = 1 + int((scores[1:] >= scores[0]).sum()) if triple[column] in candidates else math.inf
        assert found == expected


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_facts_never_seen_are_covered(run, coverage):
    """Over random halves of the held-out facts: half is the validation split, the other half is to be covered."""
    held = torch.cat([run.graph.valid, run.graph.test])
    hits, sizes = [], []
    for seed in range(40):
        order = torch.randperm(len(held), generator=torch.Generator().manual_seed(seed))
        valid, test = held[order[: len(held) // 2]], held[order[len(held) // 2 :]]
        other = replace(run, graph=replace(run.graph, valid=valid, test=test))
        needed = [answers_needed(other, relation, "tail", coverage).k for relation in range(3)]
        ranks = _ranks(other, test.long(), "tail")
        hits.append((ranks <= torch.tensor(needed)[test[:, 1].long()]).double().mean().item())
        sizes.append(max(needed))
    mean = sum(hits) / len(hits)
    assert coverage - 0.02 <= mean <= coverage + 0.06
    assert max(sizes) < 120


def test_the_position_is_that_of_a_finite_sample(run):
    """With n ranks the ⌈(n + 1) · coverage⌉-th smallest counts: of relation 2, which is a group of its own."""
    valid = run.graph.valid.long()
    own = valid[valid[:, 1] == 2]
    assert len(own) >= 50
    needed = answers_needed(run, 2, "head", 0.9)
    expected = _ranks(run, own, "head").sort().values[math.ceil((len(own) + 1) * 0.9) - 1]
    assert (needed.k, needed.num_ranks, needed.group) == (expected, len(own), "this relation")
    assert answers_needed(run, 2, "head", 0.9, any=True).group == "this relation"
    assert answers_needed(run, 2, "head", 0.99, any=True).num_ranks == 160  # its own are too few for that


def test_what_is_refused(run):
    for coverage in (0, 1, 1.5, math.nan):
        with pytest.raises(PairREError, match="a number between 0 and 1 expected"):
            answers_needed(run, 0, "tail", coverage)
    with pytest.raises(PairREError, match="160 validation triples, and it takes 999; choose a lower coverage"):
        answers_needed(run, 0, "tail", 0.999)
    with pytest.raises(PairREError, match=r"ring has no validation triples, .* --split 90/5/5$"):
        answers_needed(replace(run, graph=replace(run.graph, valid=run.graph.valid[:0])), 0, "tail", 0.5)
    strange = run.graph.valid.clone()
    strange[:, 1] = 1
    few = replace(run.graph, train=run.graph.train[run.graph.train[:, 1] != 1][:20], valid=strange)
    few = replace(few, train=torch.cat([few.train, torch.tensor([[0, 1, 1], [0, 1, 2]] * 30, dtype=torch.int32)]))
    with pytest.raises(PairREError, match=r"of 160 true answers are implausible; .*--any"):
        answers_needed(replace(run, graph=few), 1, "head", 0.9)
