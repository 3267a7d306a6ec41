"""Batches: what they contain, that both sides alternate, that false negatives are marked, that a step decides alone."""

import pytest
import torch

from pairre.kernels.reference import batch as reference
from pairre.settings.recipe import override
from pairre.training.sampling import SIDES, Sampler

CPU = torch.device("cpu")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw(sampler, step):
    return sampler.batch(SIDES[step % 2], torch.tensor(step))


def triples(batch):
    """The positives, [B, 3]."""
    ends = (batch.anchor, batch.true) if batch.side == "tail" else (batch.true, batch.anchor)
    return torch.stack([ends[0], batch.relation, ends[1]], 1)


def known_by_hand(graph, batch, rows):
    """Which negatives are training triples, the slow way."""
    train = {tuple(t) for t in graph.train.tolist()}
    marked = []
    for (h, r, t), candidates in zip(triples(batch).tolist(), rows.tolist(), strict=True):
        made = [(c, r, t) if batch.side == "head" else (h, r, c) for c in candidates]
        marked.append([triple in train for triple in made])
    return torch.tensor(marked)


@pytest.mark.parametrize("share", [0, 1, 5, 8])
def test_negatives_that_are_training_triples_are_marked(graph, quick, share):
    sampler = Sampler(graph, override(quick, [f"sampling.chunk_size={share}", "sampling.negatives=30"]), CPU)
    for step in range(4):
        batch = draw(sampler, step)
        assert batch.side == ("tail", "head")[step % 2]
        num_sets = -(-len(batch.true) // (share or len(batch.true)))
        assert batch.negatives.shape == (num_sets, 30)
        rows = batch.negatives.repeat_interleave(batch.share, 0)[: len(batch.true)]
        assert torch.equal(sampler.known_mask(batch), known_by_hand(graph, batch, rows))
    assert sampler.known_mask(batch).any()


def test_all_entities_as_negatives(graph, quick):
    everything = torch.arange(graph.num_entities).expand(32, -1)
    sampler = Sampler(graph, override(quick, ["sampling.negatives=0"]), CPU)
    batch = draw(sampler, 1)
    assert torch.equal(batch.negatives, everything[:1])
    assert torch.equal(sampler.known_mask(batch), known_by_hand(graph, batch, everything))
    unfiltered = Sampler(graph, override(quick, ["sampling.negatives=0", "sampling.filter=false"]), CPU)
    assert torch.equal(unfiltered.known_mask(batch).nonzero()[:, 1], batch.true)


def test_without_the_filter_nothing_is_marked(graph, quick):
    sampler = Sampler(graph, override(quick, ["sampling.filter=false"]), CPU)
    assert sampler.known_mask(draw(sampler, 0)) is None


def test_a_batch_is_a_function_of_the_step(graph, quick):
    one, two = Sampler(graph, quick, CPU), Sampler(graph, quick, CPU)
    for step in (7, 2, 30, 7):
        a, b = draw(one, step), draw(two, step)
        assert torch.equal(triples(a), triples(b))
        assert torch.equal(a.negatives, b.negatives)
    assert not torch.equal(draw(one, 0).negatives, draw(one, 2).negatives)


def test_an_epoch_shows_each_triple_once_a_side(graph, quick):
    sampler = Sampler(graph, override(quick, ["train.batch=16"]), CPU)
    for side in (0, 1):
        batches = [triples(draw(sampler, 2 * i + side)) for i in range(len(graph.train) // 16)]
        seen = [tuple(t) for t in torch.cat(batches).tolist()]
        assert len(seen) == len(set(seen)) == len(graph.train) // 16 * 16
        assert set(seen) <= {tuple(t) for t in graph.train.tolist()}


def test_k_vs_all_asks_each_question_once_an_epoch(graph, quick):
    changes = ["loss.name=k-vs-all", "loss.subsampling=false", "sampling.negatives=0", "train.batch=16"]
    sampler = Sampler(graph, override(quick, changes), CPU)
    for number, side in enumerate(SIDES):
        kept = [0, 1] if side == "tail" else [2, 1]
        questions = {tuple(pair) for pair in graph.train[:, kept].tolist()}
        assert len(questions) < len(graph.train)
        batches = [triples(draw(sampler, 2 * i + number)) for i in range(len(questions) // 16)]
        seen = torch.cat(batches)
        assert {tuple(t) for t in seen.tolist()} <= {tuple(t) for t in graph.train.tolist()}
        asked = [tuple(pair) for pair in seen[:, kept].tolist()]
        assert len(asked) == len(set(asked)) == len(questions) // 16 * 16


def test_weights_are_those_of_the_paper(graph, quick):
    batch = draw(Sampler(graph, quick, CPU), 0)
    train = graph.train.tolist()
    expected = []
    for h, r, t in triples(batch).tolist():
        tails = sum(a == h and b == r for a, b, _ in train)
        heads = sum(b == r and c == t for _, b, c in train)
        expected.append((tails + heads + 6) ** -0.5)
    expected = torch.tensor(expected)
    torch.testing.assert_close(batch.weight, expected)
    sampler = Sampler(graph, quick, CPU)
    assert sampler.plans["tail"].weight is sampler.plans["head"].weight  # kept once
    flat = draw(Sampler(graph, override(quick, ["loss.subsampling=false"]), CPU), 0).weight
    torch.testing.assert_close(flat, torch.ones(32))


@pytest.mark.parametrize("power", [0.2, 1.0])
def test_flattening_counts_the_answers_to_what_a_step_asks(graph, quick, power):
    sampler = Sampler(graph, override(quick, ["loss.subsampling=false", f"loss.query_balance={power}"]), CPU)
    train = graph.train.tolist()
    for step, asked in ((0, (0, 1)), (1, (1, 2))):
        batch = draw(sampler, step)
        answers = [
            sum(all(other[column] == triple[column] for column in asked) for other in train)
            for triple in triples(batch).tolist()
        ]
        assert max(answers) > 1
        torch.testing.assert_close(batch.weight, torch.tensor(answers).float().pow(-power))


def test_a_batch_larger_than_train_is_all_of_train(graph, quick):
    batch = draw(Sampler(graph, override(quick, ["train.batch=100000"]), CPU), 0)
    assert sorted(triples(batch).tolist()) == sorted(graph.train.tolist())


def test_every_device_draws_the_same(graph, quick):
    """The kernels and the plain definition, over three epochs and both sides, whatever the sizes."""
    gpu = pytest.importorskip("pairre.kernels.cuda.batch", reason="triton is not installed")
    for batch, share in ((16, 0), (7, 1), (300, 40)):
        recipe = override(quick, [f"train.batch={batch}", f"sampling.chunk_size={share}", "sampling.negatives=30"])
        sampler = Sampler(graph, recipe, CPU)
        there = Sampler(graph, recipe, torch.device(DEVICE))
        for step in (0, 1, 2, 3, 2 * (len(graph.train) // batch) + 1, 6 * (len(graph.train) // batch)):
            side, clock = SIDES[step % 2], torch.tensor(step)
            column = 2 if side == "tail" else 0
            a = reference.draw(sampler.plans[side], column, clock)
            b = gpu.draw(there.plans[side], column, clock.to(DEVICE))
            for one, two in ((a.entities, b.entities), (a.relation, b.relation), (a.weight, b.weight)):
                assert torch.equal(one, two.cpu())
            rows = sampler.batch(side, clock).negatives.to(DEVICE)
            kept, index = b.entities[: sampler.batch_size], there.known.side(side)
            mask = gpu.known_mask(index, kept, b.relation, rows, sampler.share)
            assert torch.equal(mask.cpu(), sampler.known_mask(sampler.batch(side, clock)))


def test_a_pair_that_never_occurs_has_no_known_member(graph):
    gpu = pytest.importorskip("pairre.kernels.cuda.batch", reason="triton is not installed")
    index = graph.known_train.to(DEVICE).side("tail")
    pairs = {(h, r) for h, r, _ in graph.train.tolist()}
    missing = [(h, r) for h in range(graph.num_entities) for r in range(graph.num_relations) if (h, r) not in pairs]
    kept, relation = torch.tensor([missing[0], missing[-1]], device=DEVICE).unbind(1)
    everyone = torch.arange(graph.num_entities, device=DEVICE)[None]
    assert not gpu.known_mask(index, kept.contiguous(), relation.contiguous(), everyone, 2).any()
