"""Batches: what they contain, that both sides alternate, that false negatives are marked, that a step decides alone."""

from dataclasses import replace

import pytest
import torch

from pairre.kernels.cpu import batch as cpu
from pairre.kernels.reference import batch as reference
from pairre.models import PairRE, model_class
from pairre.settings import override
from pairre.training.sampling import STEP_SIDES, Sampler

CPU = torch.device("cpu")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw(sampler, step):
    return sampler.draw(STEP_SIDES[step % 2], torch.tensor(step))


def known_mask(sampler, batch):
    return sampler.targets(batch).known


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


@pytest.mark.parametrize("chunk_size", [0, 1, 5, 8])
def test_negatives_that_are_training_triples_are_marked(graph, quick, chunk_size):
    sampler = Sampler(
        graph, override(quick, [f"sampling.chunk_size={chunk_size}", "sampling.negatives=30"]), PairRE, CPU
    )
    for step in range(4):
        batch = draw(sampler, step)
        assert batch.side == ("tail", "head")[step % 2]
        num_sets = -(-len(batch.true) // (chunk_size or len(batch.true)))
        assert batch.negative_ids.shape == (num_sets, 30)
        rows = batch.negative_ids.repeat_interleave(sampler.chunk_size, 0)[: len(batch.true)]
        assert torch.equal(known_mask(sampler, batch), known_by_hand(graph, batch, rows))
    assert known_mask(sampler, batch).any()


def test_all_entities_as_negatives(graph, quick):
    everything = torch.arange(graph.num_entities).expand(32, -1)
    sampler = Sampler(graph, override(quick, ["sampling.negatives=0"]), PairRE, CPU)
    batch = draw(sampler, 1)
    assert torch.equal(batch.negative_ids, everything[:1])
    assert torch.equal(known_mask(sampler, batch), known_by_hand(graph, batch, everything))
    unfiltered = Sampler(graph, override(quick, ["sampling.negatives=0", "sampling.filter=false"]), PairRE, CPU)
    assert torch.equal(known_mask(unfiltered, batch).nonzero()[:, 1], batch.true)


def test_without_the_filter_nothing_is_marked(graph, quick):
    sampler = Sampler(graph, override(quick, ["sampling.filter=false"]), PairRE, CPU)
    assert known_mask(sampler, draw(sampler, 0)) is None


def test_without_the_filter_inverse_relations_are_candidates_and_only_the_own_relation_is_marked(graph, quick):
    settings = ["sampling.filter=false", "loss.relation_weight=1", "model.reciprocal=true", "model.name=complex"]
    sampler = Sampler(graph, override(quick, settings), model_class("complex"), CPU)
    for step, offset in ((0, 0), (1, graph.num_relations)):
        batch = draw(sampler, step)
        assert sampler.relation_candidates[batch.side].tolist() == list(range(2 * graph.num_relations))
        marked = sampler.targets(batch).known_relations
        assert torch.equal(marked.nonzero()[:, 1], batch.relation + offset)
        assert marked.sum(1).tolist() == [1] * len(marked)


def test_a_batch_is_a_function_of_the_step(graph, quick):
    one, two = Sampler(graph, quick, PairRE, CPU), Sampler(graph, quick, PairRE, CPU)
    for step in (7, 2, 30, 7):
        a, b = draw(one, step), draw(two, step)
        assert torch.equal(triples(a), triples(b))
        assert torch.equal(a.negative_ids, b.negative_ids)
    assert not torch.equal(draw(one, 0).negative_ids, draw(one, 2).negative_ids)


def test_an_epoch_shows_each_triple_once_a_side(graph, quick):
    sampler = Sampler(graph, override(quick, ["train.batch=16"]), PairRE, CPU)
    for side in (0, 1):
        batches = [triples(draw(sampler, 2 * i + side)) for i in range(len(graph.train) // 16)]
        seen = [tuple(t) for t in torch.cat(batches).tolist()]
        assert len(seen) == len(set(seen)) == len(graph.train) // 16 * 16
        assert set(seen) <= {tuple(t) for t in graph.train.tolist()}


def test_k_vs_all_draws_each_query_once_an_epoch(graph, quick):
    changes = ["loss.name=k-vs-all", "loss.subsampling=false", "sampling.negatives=0", "train.batch=16"]
    sampler = Sampler(graph, override(quick, changes), PairRE, CPU)
    for number, side in enumerate(STEP_SIDES):
        kept = [0, 1] if side == "tail" else [2, 1]
        queries = {tuple(pair) for pair in graph.train[:, kept].tolist()}
        assert len(queries) < len(graph.train)
        batches = [triples(draw(sampler, 2 * i + number)) for i in range(len(queries) // 16)]
        seen = torch.cat(batches)
        assert {tuple(t) for t in seen.tolist()} <= {tuple(t) for t in graph.train.tolist()}
        asked = [tuple(pair) for pair in seen[:, kept].tolist()]
        assert len(asked) == len(set(asked)) == len(queries) // 16 * 16


def test_weights_are_those_of_the_paper(graph, quick):
    batch = draw(Sampler(graph, quick, PairRE, CPU), 0)
    train = graph.train.tolist()
    expected = []
    for h, r, t in triples(batch).tolist():
        tails = sum(a == h and b == r for a, b, _ in train)
        heads = sum(b == r and c == t for _, b, c in train)
        expected.append((tails + heads + 6) ** -0.5)
    expected = torch.tensor(expected)
    torch.testing.assert_close(batch.weight, expected)
    sampler = Sampler(graph, quick, PairRE, CPU)
    assert sampler.plans["tail"].weight is sampler.plans["head"].weight  # kept once
    flat = draw(Sampler(graph, override(quick, ["loss.subsampling=false"]), PairRE, CPU), 0).weight
    torch.testing.assert_close(flat, torch.ones(32))


def test_weights_of_triples_multiply_those_of_the_recipe(graph, quick):
    """Triples of weight 0 are no positives, but known."""
    weights = torch.rand(len(graph.train), generator=torch.Generator().manual_seed(0))
    weights[::4] = 0
    weighted = replace(graph, weights={"train": weights})
    given = {tuple(t): w for t, w in zip(graph.train.tolist(), weights.tolist(), strict=True)}
    mean = sum(given.values()) / sum(w > 0 for w in given.values())
    everything = override(quick, ["train.batch=100000", "sampling.negatives=30"])
    plain, sampler = (Sampler(g, everything, PairRE, CPU) for g in (graph, weighted))
    for step in range(2):
        batch, expected = draw(sampler, step), draw(plain, step)
        usual = dict(zip(map(tuple, triples(expected).tolist()), expected.weight.tolist(), strict=True))
        positives = list(map(tuple, triples(batch).tolist()))
        assert set(positives) == {triple for triple, weight in given.items() if weight}
        wanted = torch.tensor([usual[triple] * given[triple] / mean for triple in positives])
        torch.testing.assert_close(batch.weight, wanted)
        torch.testing.assert_close(sampler.targets(batch).weight, wanted / wanted.sum())
        assert torch.equal(
            known_mask(sampler, batch), known_by_hand(graph, batch, batch.negative_ids.expand(len(positives), -1))
        )


def test_tiny_weights_leave_no_batch_without_any(graph, quick):
    weights = torch.full((len(graph.train),), 1e-44)
    weights[0] = 1e38
    sampler = Sampler(replace(graph, weights={"train": weights}), override(quick, ["train.batch=1"]), PairRE, CPU)
    for step in range(20):
        assert sampler.targets(draw(sampler, step)).weight.tolist() == [1]


@pytest.mark.parametrize("power", [0.2, 1.0])
def test_query_balance_counts_the_answers_to_the_query_of_a_step(graph, quick, power):
    sampler = Sampler(graph, override(quick, ["loss.subsampling=false", f"loss.query_balance={power}"]), PairRE, CPU)
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
    batch = draw(Sampler(graph, override(quick, ["train.batch=100000"]), PairRE, CPU), 0)
    assert sorted(triples(batch).tolist()) == sorted(graph.train.tolist())


def test_every_device_draws_the_same(graph, quick):
    """The kernels and the plain definition, over three epochs and both sides, whatever the sizes."""
    gpu = pytest.importorskip("pairre.kernels.cuda.batch", reason="triton is not installed")
    for batch, chunk_size in ((16, 0), (7, 1), (300, 40)):
        recipe = override(quick, [f"train.batch={batch}", f"sampling.chunk_size={chunk_size}", "sampling.negatives=30"])
        sampler = Sampler(graph, recipe, PairRE, CPU)
        there = Sampler(graph, recipe, PairRE, torch.device(DEVICE))
        for step in (0, 1, 2, 3, 2 * (len(graph.train) // batch) + 1, 6 * (len(graph.train) // batch)):
            side, number = STEP_SIDES[step % 2], torch.tensor(step)
            column = 2 if side == "tail" else 0
            a = reference.draw_batch(sampler.plans[side], column, number)
            b = gpu.draw_batch(there.plans[side], column, number.to(DEVICE))
            for one, two in ((a.entities, b.entities), (a.relation, b.relation), (a.weight, b.weight)):
                assert torch.equal(one, two.cpu())
            rows = sampler.draw(side, number).negative_ids.to(DEVICE)
            anchor, index = b.entities[: sampler.batch_size], there.indexes[side]
            mask = gpu.known_mask(index, anchor, b.relation, rows, sampler.chunk_size)
            expected = known_mask(sampler, sampler.draw(side, number))
            assert torch.equal(mask.cpu(), expected)
            host = (sampler.indexes[side], a.entities[: sampler.batch_size], a.relation, rows.cpu(), sampler.chunk_size)
            assert torch.equal(reference.known_mask(*host), expected)
            c = cpu.draw_batch(sampler.plans[side], column, number)
            for one, two in ((a.entities, c.entities), (a.relation, c.relation), (a.weight, c.weight)):
                assert torch.equal(one, two)


def test_a_pair_that_never_occurs_has_no_known_member(graph):
    gpu = pytest.importorskip("pairre.kernels.cuda.batch", reason="triton is not installed")
    index = graph.known_train.side("tail", torch.device(DEVICE))
    pairs = {(h, r) for h, r, _ in graph.train.tolist()}
    missing = [(h, r) for h in range(graph.num_entities) for r in range(graph.num_relations) if (h, r) not in pairs]
    kept, relation = torch.tensor([missing[0], missing[-1]], device=DEVICE).unbind(1)
    everyone = torch.arange(graph.num_entities, device=DEVICE)[None]
    assert not gpu.known_mask(index, kept.contiguous(), relation.contiguous(), everyone, 2).any()


@pytest.mark.parametrize("step", [0, 1, 7, 400])
def test_a_batch_is_a_slice_of_the_order_of_its_epoch(graph, quick, step):
    """The order is evaluated where it is asked for, with the same result as that of a whole epoch."""
    from pairre.support.randomness import bits, permute

    sampler = Sampler(graph, override(quick, ["train.batch=16"]), PairRE, CPU)
    plan, num = sampler.plans[STEP_SIDES[step % 2]], len(graph.train)
    epoch, position = divmod(step // 2, num // 16)
    stream = bits(plan.order_stream, torch.tensor(2 * epoch + step % 2))
    order = permute(stream, torch.arange(num), num)[16 * position : 16 * (position + 1)]
    assert torch.equal(triples(draw(sampler, step)), graph.train[order].long())


@pytest.mark.parametrize("settings", [["loss.subsampling=true"], ["loss.subsampling=false", "loss.query_balance=0.5"]])
def test_weights_of_a_graph_on_disk_are_computed_where_they_are_asked_for(graph, quick, settings, monkeypatch):
    recipe = override(quick, settings)
    expected = Sampler(graph, recipe, PairRE, CPU)
    on_disk = replace(graph, stored=None)
    object.__setattr__(on_disk, "stored", object())
    on_disk.__dict__["known_train"] = graph.known_train
    sampler = Sampler(on_disk, recipe, PairRE, CPU)
    assert not isinstance(sampler.plans["tail"].weight, torch.Tensor)
    for step in range(10):
        assert torch.equal(draw(sampler, step).weight, draw(expected, step).weight)
