"""One contract over every model: a triple's score is the same however it is asked for, and gradients are right."""

import pytest
import torch

from pairre.errors import RecipeError
from pairre.graph.index import COLUMN
from pairre.models import MODELS, Model, PairRE, model_class

CONTRACT = pytest.mark.parametrize("kind", MODELS, ids=lambda m: m.name)


def make(kind, dtype=torch.float32, num_entities=11, num_relations=4, dim=6):
    model = kind(num_entities, num_relations, dim)
    model.initialise(0.5, seed=0)
    return model.to(dtype)


def some_triples(num=9):
    random = torch.Generator().manual_seed(1)
    return torch.stack([torch.randint(n, (num,), generator=random) for n in (11, 4, 11)], 1)


@CONTRACT
def test_a_score_is_the_same_however_it_is_asked_for(kind):
    model, triples = make(kind, torch.float64), some_triples()
    h, r, t = triples.T
    score = model.score(triples)
    each = torch.arange(len(triples))
    torch.testing.assert_close(model.score_tails(h, r)[each, t], score)
    torch.testing.assert_close(model.score_heads(r, t)[each, h], score)
    torch.testing.assert_close(model.score_relations(h, t)[each, r], score)
    for side in ("head", "tail"):
        true = triples[:, COLUMN[side]]
        own = torch.stack([true, (true + 1) % 11], 1)
        torch.testing.assert_close(model.score_candidates(triples, side, own)[:, 0], score)
        shared = torch.arange(11).flip(0)
        torch.testing.assert_close(model.score_candidates(triples, side, shared)[each, 10 - true], score)


@CONTRACT
def test_relations_in_chunks_are_the_same(kind, monkeypatch):
    model, triples = make(kind), some_triples()
    whole = model.score_relations(triples[:, 0], triples[:, 2])
    monkeypatch.setattr("pairre.models.base._BUDGET", 1)
    torch.testing.assert_close(model.score_relations(triples[:, 0], triples[:, 2]), whole)


@CONTRACT
def test_gradients_match_finite_differences(kind):
    model, triples = make(kind, torch.float64), some_triples(3)
    entity, relation = (p.detach().clone().requires_grad_() for p in (model.entity, model.relation))

    def score(entity, relation):
        return torch.func.functional_call(model, {"entity": entity, "relation": relation}, (triples,))

    kind.forward = lambda self, triples: self.score(triples)
    try:
        assert torch.autograd.gradcheck(score, (entity, relation), eps=1e-7)
    finally:
        del kind.forward


@CONTRACT
def test_initialisation_depends_on_the_seed_alone(kind):
    one, same, other = kind(11, 4, 6), kind(11, 4, 6), kind(11, 4, 6)
    one.initialise(0.5, 3)
    same.initialise(0.5, 3)
    other.initialise(0.5, 4)
    assert torch.equal(one.entity, same.entity)
    assert not torch.equal(one.entity, other.entity)
    assert one.entity.abs().max() <= 0.5
    assert one.entity.abs().max() > 0.4


def test_pairre_is_the_formula_of_the_paper():
    model, triples = make(PairRE, torch.float64), some_triples()
    for (h, r, t), score in zip(triples.tolist(), model.score(triples).tolist(), strict=True):
        head, tail = (model.entity[e] / model.entity[e].norm() for e in (h, t))
        r_head, r_tail = model.relation[r][:6], model.relation[r][6:]
        assert score == pytest.approx(-(head * r_head - tail * r_tail).abs().sum().item())


def test_every_model_is_listed():
    def below(kind):
        return {kind, *(model for child in kind.__subclasses__() for model in below(child))}

    assert below(Model) - {Model} == set(MODELS)
    assert len({model.name for model in MODELS}) == len(MODELS)


def test_an_unknown_model_gets_a_suggestion():
    with pytest.raises(RecipeError, match=r"model\.name: no model 'pairee'; did you mean 'pairre'\?"):
        model_class("pairee")


@pytest.mark.parametrize("side", ["tail", "head"])
@pytest.mark.parametrize("dim", [5, 300])
def test_the_fused_scores_of_a_batch_are_its_scores(side, dim):
    """PairRE's kernels between rows and compare, against the path that all models share."""
    fused = pytest.importorskip("pairre.ops.gpu.pairre", reason="triton is not installed")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = PairRE(3, 2, dim)
    random = torch.Generator().manual_seed(0)
    rows = [torch.randn(n, width, generator=random) for n, width in ((2 * 7 + 9, dim), (7, 2 * dim))]
    upstream = [torch.randn(shape, generator=random) for shape in ((7,), (7, 9))]
    results = []
    for there, dtype in ((device, torch.float32), ("cpu", torch.float64)):
        entity, relation = (t.to(there, dtype).requires_grad_() for t in rows)
        if dtype == torch.float32:
            scores = fused.pairre_scores(entity, relation, side == "tail")
        else:
            scores = model.double().batch_scores(side, entity, relation, (1, 7))
        gradients = torch.autograd.grad(scores, (entity, relation), [u.to(there, dtype) for u in upstream])
        results.append([t.detach().double().cpu() for t in (*scores, *gradients)])
    for got, want in zip(*results, strict=True):
        assert (got - want).norm() <= 1e-5 * want.norm()
