"""One contract over every model: a triple has one score, however it is computed, and gradients are right."""

from contextlib import nullcontext

import pytest
import torch

import pairre
from conftest import cuda_kernels_on_the_cpu, split_rows
from pairre.graph.index import COLUMN
from pairre.models import (
    Chunked,
    Ensemble,
    EntityRules,
    LocalRows,
    Model,
    Own,
    PairRE,
    RuleScores,
    Shared,
    model_class,
    models,
)
from pairre.runs import build_model
from pairre.settings import override, validate
from pairre.support.errors import RecipeError
from pairre.training.sampling import relation_groups

CONTRACT = pytest.mark.parametrize("model_type", models(), ids=lambda m: m.name)


def make(model_type, dtype=torch.float32, num_entities=11, num_relations=4, dim=6, reciprocal=False):
    model = model_type(num_entities, num_relations, dim, reciprocal=reciprocal)
    model.initialise(0.5, seed=0)
    return model.to(dtype)


def some_triples(num=9):
    random = torch.Generator().manual_seed(1)
    return torch.stack([torch.randint(n, (num,), generator=random) for n in (11, 4, 11)], 1)


@CONTRACT
@pytest.mark.parametrize("reciprocal", [False, True])
def test_a_score_is_the_same_however_it_is_computed(model_type, reciprocal):
    model = model_type(11, 4, 6, reciprocal=reciprocal)
    model.initialise(0.5, seed=0)
    model.double()
    triples = some_triples()
    h, r, t = triples.T
    scores = {side: model.score(triples, side) for side in ("tail", "head")}
    each = torch.arange(len(triples))
    torch.testing.assert_close(model.score_tails(h, r)[each, t], scores["tail"])
    torch.testing.assert_close(model.score_heads(r, t)[each, h], scores["head"])
    torch.testing.assert_close(model.score_relations(h, t)[each, r], scores["tail"])
    same = torch.allclose(scores["tail"], scores["head"])
    assert same == (not model_type.sides_differ and not model.reciprocal)
    for side in ("head", "tail"):
        true = triples[:, COLUMN[side]]
        own = torch.stack([true, (true + 1) % 11], 1)
        torch.testing.assert_close(model.score_candidates(triples, side, own)[:, 0], scores[side])
        shared = torch.arange(11).flip(0)
        torch.testing.assert_close(model.score_candidates(triples, side, shared)[each, 10 - true], scores[side])


@CONTRACT
@pytest.mark.parametrize("side", ["tail", "head"])
@pytest.mark.parametrize("reciprocal", [False, True])
def test_the_scores_of_a_batch_are_those_of_its_triples(model_type, side, reciprocal, monkeypatch):
    """Negatives shared by all, by sets of positives, and own; where they depend on the relation, in chunks."""
    monkeypatch.setattr("pairre.models.scoring.MAX_ELEMENTS", 500)
    model = model_type(11, 4, 6, reciprocal=reciprocal)
    model.initialise(0.5, seed=0)
    model.double()
    triples = some_triples(6)
    anchor, true = triples[:, 2 - COLUMN[side]], triples[:, COLUMN[side]]
    relation = model.relation_rows(triples[:, 1], side)
    negatives = torch.tensor([[1, 4, 4], [0, 10, 3], [5, 6, 7], [1, 2, 3], [9, 9, 0], [8, 2, 10]])
    _, groups = relation_groups(triples[:, 1], 4, with_rows=False)
    assert len(triples[:, 1].unique()) < 6
    for rows, layout, each in (
        (negatives[0], Shared(), negatives[:1].expand(6, -1)),
        (negatives[0], Shared(groups if model.projects_entities else None), negatives[:1].expand(6, -1)),
        (negatives[:2].flatten(), Chunked(2, 3), negatives[:2].repeat_interleave(3, 0)),
        (torch.arange(11), Own(negatives), negatives),
    ):
        entity = model.entity_rows(torch.cat([anchor, true, rows]))
        positive, negative = model.score_batch(side, split_rows(entity, 6), relation, layout)
        torch.testing.assert_close(positive, model.score(triples, side))
        torch.testing.assert_close(negative, model.score_candidates(triples, side, each))


@pytest.mark.parametrize("name", [model.name for model in models() if model.matrix_parts])
@pytest.mark.parametrize("side", ["tail", "head"])
@pytest.mark.parametrize("kernels", ["cpu", "cuda"])
@pytest.mark.parametrize("limit", [1, 1 << 24])
def test_one_row_for_each_relation_of_a_batch_is_as_good_as_one_for_each_positive(
    name, side, kernels, limit, monkeypatch
):
    """Scores and gradients of rows, those of entities and relations summed by id; relations may be missing."""
    if kernels == "cuda":
        pytest.importorskip("pairre.kernels.cuda", reason="triton is not installed")
    monkeypatch.setattr("pairre.models.scoring.MAX_ELEMENTS", limit)
    with cuda_kernels_on_the_cpu() if kernels == "cuda" else nullcontext():
        model, triples = make(model_class(name), reciprocal=side == "head"), some_triples(6)
        model.relation.data[:, ::3] = 0  # TranSparse has no gradient there
        ids = torch.cat([triples[:, 2 - COLUMN[side]], triples[:, COLUMN[side]], torch.tensor([1, 4, 4])])
        results = []
        for with_rows in (False, True):
            relations, groups = relation_groups(triples[:, 1], 4, with_rows=with_rows)
            offset = model.relation_offset[side]
            relation = model.relation[relations.clamp(min=0) + offset] * (relations >= 0)[:, None]
            scored = model.score_batch(side, split_rows(model.entity[ids], 6), relation, Shared(groups))
            scores = torch.cat([part.flatten() for part in scored])
            loss = (scores * torch.arange(1, len(scores) + 1)).sum()
            results.append([scores, *torch.autograd.grad(loss, (model.entity, model.relation))])
        for per_positive, per_group in zip(*results, strict=True):
            torch.testing.assert_close(per_group, per_positive, rtol=1e-4, atol=1e-4)


@CONTRACT
def test_relations_in_chunks_are_the_same(model_type, monkeypatch):
    model, triples = make(model_type), some_triples()
    whole = model.score_relations(triples[:, 0], triples[:, 2])
    monkeypatch.setattr("pairre.models.scoring.MAX_ELEMENTS", 1)
    torch.testing.assert_close(model.score_relations(triples[:, 0], triples[:, 2]), whole)


@CONTRACT
def test_gradients_match_finite_differences(model_type):
    model, triples = make(model_type, torch.float64), some_triples(3)
    entity, relation = (p.detach().clone().requires_grad_() for p in (model.entity, model.relation))

    def score(entity, relation):
        model.set_rows(LocalRows(entity), LocalRows(relation))
        return model.score(triples)

    assert torch.autograd.gradcheck(score, (entity, relation), eps=1e-7)


@CONTRACT
def test_initialisation_depends_on_the_seed_alone(model_type):
    one, same, other = (model_type(11, 4, 6) for _ in range(3))
    one.initialise(0.5, 3)
    same.initialise(0.5, 3)
    other.initialise(0.5, 4)
    assert torch.equal(one.entity, same.entity)
    assert not torch.equal(one.entity, other.entity)
    assert one.entity.abs().max() <= 0.5
    assert one.entity.abs().max() > 0.3
    for name, rule in model_type.constraints.items():
        table = getattr(one, name).detach()
        assert torch.equal(rule(one, table), table)


def test_rows_of_length_1_have_no_other_bounds(graph, quick):
    model = model_class("complex")(11, 4, 6, unit_norm=True)
    model.initialise(0.5, 3)
    torch.testing.assert_close(model.entity.norm(dim=1), torch.ones(11))
    with pytest.raises(RecipeError, match=r"model\.unit_norm: rows of simple\+ have bounds of their own"):
        validate(override(quick, ["model.unit_norm=true"]), graph, model_class("simple+"))


def test_pairre_is_the_formula_of_the_paper():
    model, triples = make(PairRE, torch.float64), some_triples()
    for (h, r, t), score in zip(triples.tolist(), model.score(triples).tolist(), strict=True):
        head, tail = (model.entity[e] / model.entity[e].norm() for e in (h, t))
        r_head, r_tail = model.relation[r][:6], model.relation[r][6:]
        assert score == pytest.approx(-(head * r_head - tail * r_tail).abs().sum().item())


def test_every_model_is_listed():
    def below(model_type):
        return {model_type, *(model for child in model_type.__subclasses__() for model in below(child))}

    found = {model_type for model_type in below(Model) if hasattr(model_type, "name")}
    assert found - {Ensemble, EntityRules, RuleScores} == set(models())  # these are made of runs and rules, not trained
    assert len({model.name for model in models()}) == len(models())


def test_an_unknown_model_gets_a_suggestion():
    with pytest.raises(RecipeError, match=r"model\.name: no model 'pairee'; did you mean 'pairre'\?"):
        model_class("pairee")


@pytest.mark.parametrize("side", ["tail", "head"])
@pytest.mark.parametrize("dim", [5, 300])
def test_the_fused_scores_of_a_batch_are_its_scores(side, dim):
    """PairRE's kernels from rows to scores, against the path that all models share."""
    fused = pytest.importorskip("pairre.kernels.cuda.pairre", reason="triton is not installed")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = PairRE(3, 2, dim)
    random = torch.Generator().manual_seed(0)
    rows = [torch.randn(n, width, generator=random) for n, width in ((2 * 7 + 9, dim), (7, 2 * dim))]
    upstream = [torch.randn(shape, generator=random) for shape in ((7,), (7, 9))]
    results = []
    for there, dtype in ((device, torch.float32), ("cpu", torch.float64)):
        entity, relation = (t.to(there, dtype).requires_grad_() for t in rows)
        if dtype == torch.float32:
            scores = fused.pairre_batch_scores(entity, relation, side == "tail")
        else:
            scores = model.double().score_batch(side, split_rows(entity, 7), relation, Shared())
        gradients = torch.autograd.grad(scores, (entity, relation), [u.to(there, dtype) for u in upstream])
        results.append([t.detach().double().cpu() for t in (*scores, *gradients)])
    for got, want in zip(*results, strict=True):
        assert (got - want).norm() <= 1e-5 * want.norm()


def test_norms_are_those_a_model_has(graph, quick):
    triples = some_triples()
    transe = model_class("transe")
    one, two = transe(11, 4, 6), transe(11, 4, 6, metric="l2")
    for model in (one, two):
        model.initialise(0.5, seed=0)
    gap = one.entity[triples[:, 0]] + one.relation[triples[:, 1]] - one.entity[triples[:, 2]]
    torch.testing.assert_close(one.score(triples), -gap.abs().sum(1))
    torch.testing.assert_close(two.score(triples), -gap.norm(dim=1))
    with pytest.raises(RecipeError, match=r"model\.norm: distmult has dot, not l2"):
        validate(override(quick, ["model.norm=l2"]), graph, model_class("distmult"))


def test_ote_turns_without_stretching():
    """Φ(M) is orthogonal: with scales of 0 the query is as long as the entity, and the two directions agree."""
    model = make(model_class("ote"), torch.float64)
    model.relation.data[:, -6:] = 0
    triples = some_triples()
    _, (q, _) = model.make_queries(triples, "tail")
    torch.testing.assert_close(q.norm(dim=1), model.entity[triples[:, 0]].norm(dim=1))
    torch.testing.assert_close(model.score(triples, "tail"), model.score(triples, "head"))


def test_rotate_with_a_pair_is_rotate_with_the_difference():
    pair, single = make(model_class("rotate+pair"), torch.float64), make(model_class("rotate"), torch.float64)
    single.entity.data.copy_(pair.entity)
    a, b = pair.relation.chunk(2, 1)
    single.relation.data.copy_(a - b)
    torch.testing.assert_close(pair.score(some_triples()), single.score(some_triples()))


def test_seek_with_two_segments_is_complex_up_to_signs():
    seek, other = make(model_class("seek"), torch.float64, dim=6), make(model_class("complex"), torch.float64, dim=3)
    other.entity.data.copy_(seek.entity)
    other.relation.data.copy_(seek.relation)
    h, r, t = (x.chunk(2, 1) for x in (seek.entity[:4], seek.relation[:4], seek.entity[4:8]))
    by_hand = (r[0] * h[0] * t[0] + r[0] * h[1] * t[1] + r[1] * h[0] * t[1] - r[1] * h[1] * t[0]).sum(1)
    triples = torch.stack([torch.arange(4), torch.arange(4), torch.arange(4, 8)], 1)
    torch.testing.assert_close(seek.score(triples), by_hand)
    torch.testing.assert_close(other.score(triples), by_hand)


def test_transr_starts_as_transe(graph):
    transr, transe = (model_class(name)(graph.num_entities, graph.num_relations, 6) for name in ("transr", "transe"))
    transr.initialise(0.5, seed=0)
    transr.init_from_graph(graph, seed=0)
    transe.entity.data.copy_(transr.entity)
    transe.relation.data.copy_(transr.relation[:, :6])
    transe.metric = "l2"
    triples = graph.test.long()
    assert transr.entity.std() > 0.1
    torch.testing.assert_close(transr.score(triples), transe.score(triples))


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("name", ["transparse-share", "transparse-separate"])
def test_transparse_starts_as_the_identity_with_a_share_of_zeros(graph, name, reciprocal):
    model = model_class(name)(graph.num_entities, graph.num_relations, 16, reciprocal=reciprocal)
    model.initialise(0.5, seed=0)
    model.init_from_graph(graph, seed=0)
    facts = [graph.train[graph.train[:, 1] == r] for r in range(3)]
    sizes = {"matrix": [len(f) for f in facts]}
    if name == "transparse-separate":
        sizes = {end: [len(f[:, COLUMN[end]].unique()) for f in facts] for end in ("head", "tail")}
    most = max(max(n) for n in sizes.values())
    for row, table in enumerate(model.relation):
        swapped = list(sizes)[:: -1 if row >= 3 else 1]  # r⁻¹ has r's tails for heads
        for part, like in zip(sizes, swapped, strict=True):
            matrix = getattr(model.parts("relation", table), part).view(16, 16)
            assert (matrix == 0).sum() == int((1 - 0.7 * sizes[like][row % 3] / most) * 16**2)
            torch.testing.assert_close(matrix, torch.eye(16), atol=0.005, rtol=0)


@pytest.mark.parametrize("name", ["transparse-share", "transparse-separate"])
def test_zeros_of_transparse_stay(graph, quick, name):
    recipe = override(quick, [f"model.name={name}"])
    before = build_model(graph, recipe, torch.device("cpu")).relation
    after = pairre.train(graph, recipe, progress=False, device="cpu").model.relation
    assert (before == 0).any()
    assert torch.equal(before == 0, after == 0)
    assert not torch.equal(before, after)


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("cls", [c for c in models() if c.linear_in_relation], ids=lambda c: c.name)
def test_a_linear_score_of_all_relations_is_one_product(cls, reciprocal, monkeypatch):
    model = cls(7, 3, 4, reciprocal=reciprocal).double()
    random = torch.Generator().manual_seed(0)
    for side in ("tail", "head"):
        rows = [torch.randn(n, w, generator=random, dtype=torch.float64, requires_grad=True) for n, w in shapes(model)]
        found = []
        for linear in (True, False):
            monkeypatch.setattr(cls, "linear_in_relation", linear)
            scores = model.score_relation_rows(side, *rows)
            found.append((scores, *torch.autograd.grad(scores.square().sum(), rows)))
        torch.testing.assert_close(found[0], found[1])


def shapes(model):
    """Return the numbers and widths of anchors and true entities of five pairs, and of relations."""
    return (10, model.entity.shape[1]), (3, model.relation.shape[1])
