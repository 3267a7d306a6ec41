"""Batches: what they contain, that both sides alternate, that false negatives are marked, that a step decides alone."""

import pytest
import torch

from pairre.recipe import override
from pairre.sampling import Sampler

CPU = torch.device("cpu")


def known_by_hand(graph, batch, rows):
    """Which negatives are training triples, the slow way."""
    train = {tuple(t) for t in graph.train.tolist()}
    marked = []
    for (h, r, t), candidates in zip(batch.triples.tolist(), rows.tolist(), strict=True):
        made = [(c, r, t) if batch.side == "head" else (h, r, c) for c in candidates]
        marked.append([triple in train for triple in made])
    return torch.tensor(marked)


@pytest.mark.parametrize("share", [0, 1, 5, 8])
def test_negatives_that_are_training_triples_are_marked(graph, quick, share):
    sampler = Sampler(graph, override(quick, [f"sampling.share={share}", "sampling.negatives=30"]), CPU)
    for step in range(4):
        batch = sampler.batch(step)
        assert batch.side == ("tail", "head")[step % 2]
        num_sets = -(-len(batch.triples) // (share or len(batch.triples)))
        assert batch.negatives.shape == (num_sets, 30)
        rows = batch.negatives.repeat_interleave(batch.share, 0)[: len(batch.triples)]
        assert torch.equal(batch.known, known_by_hand(graph, batch, rows))
    assert batch.known.any()


def test_all_entities_as_negatives(graph, quick):
    everything = torch.arange(graph.num_entities).expand(32, -1)
    batch = Sampler(graph, override(quick, ["sampling.negatives=0"]), CPU).batch(1)
    assert batch.negatives is None
    assert torch.equal(batch.known, known_by_hand(graph, batch, everything))
    unfiltered = Sampler(graph, override(quick, ["sampling.negatives=0", "sampling.filter=false"]), CPU).batch(1)
    assert torch.equal(unfiltered.known.nonzero()[:, 1], unfiltered.true)


def test_without_the_filter_nothing_is_marked(graph, quick):
    assert Sampler(graph, override(quick, ["sampling.filter=false"]), CPU).batch(0).known is None


def test_a_batch_is_a_function_of_the_step(graph, quick):
    one, two = Sampler(graph, quick, CPU), Sampler(graph, quick, CPU)
    for step in (7, 2, 30, 7):
        a, b = one.batch(step), two.batch(step)
        assert torch.equal(a.triples, b.triples)
        assert torch.equal(a.negatives, b.negatives)
    assert not torch.equal(one.batch(0).negatives, one.batch(2).negatives)


def test_an_epoch_shows_each_triple_once_a_side(graph, quick):
    sampler = Sampler(graph, override(quick, ["train.batch=16"]), CPU)
    for side in (0, 1):
        batches = [sampler.batch(2 * i + side).triples for i in range(sampler.batches_per_epoch)]
        seen = [tuple(t) for t in torch.cat(batches).tolist()]
        assert len(seen) == len(set(seen)) == len(graph.train) // 16 * 16
        assert set(seen) <= {tuple(t) for t in graph.train.tolist()}


def test_weights_are_those_of_the_paper(graph, quick):
    batch = Sampler(graph, quick, CPU).batch(0)
    train = graph.train.tolist()
    expected = []
    for h, r, t in batch.triples.tolist():
        tails = sum(a == h and b == r for a, b, _ in train)
        heads = sum(b == r and c == t for _, b, c in train)
        expected.append((tails + heads + 6) ** -0.5)
    expected = torch.tensor(expected)
    torch.testing.assert_close(batch.weight, expected / expected.sum())
    flat = Sampler(graph, override(quick, ["loss.weighting=false"]), CPU).batch(0).weight
    torch.testing.assert_close(flat, torch.full((32,), 1 / 32))


def test_a_batch_larger_than_train_is_all_of_train(graph, quick):
    batch = Sampler(graph, override(quick, ["train.batch=100000"]), CPU).batch(0)
    assert sorted(batch.triples.tolist()) == sorted(graph.train.tolist())
