"""Formulas of models that GPU kernels know: scores against the formula, and counts against the scores."""

import pytest
import torch

from pairre.kernels import RankingBatch
from pairre.kernels.reference.scores import formula_of
from pairre.models import model_class

scores = pytest.importorskip("pairre.kernels.cuda.scores", reason="triton is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # Triton interprets kernels where there is no GPU
FORMULAS = [("kg2e", 5), ("kg2e-kl", 5), ("kg2e", 24), ("ote", 6), ("ote", 21), ("gc-ote", 6)]


def tables(name, dim, num_queries=5, num_candidates=37):
    """A model, and prepared queries, scales and candidates as it may have them."""
    model = model_class(name)(3, 2, dim)
    random = torch.Generator().manual_seed(0)
    width = 2 * dim if name in ("kg2e", "kg2e-kl", "gc-ote") else dim
    q, c = (torch.randn(n, width, generator=random) for n in (num_queries, num_candidates))
    w = None
    if name.startswith("kg2e"):
        q[:, dim:], c[:, dim:] = (x[:, dim:].abs().clamp(0.05, 5) for x in (q, c))
        w = torch.rand(num_queries, dim, generator=random) + 0.05
    return model, *(None if t is None else t.to(DEVICE) for t in (q, w, c))


@pytest.mark.parametrize(("name", "dim"), FORMULAS)
def test_scores_are_those_of_the_formula(name, dim):
    model, q, w, c = tables(name, dim)
    found = scores.score_candidates(model.pair_score, q, w, c)
    wide = [None if t is None else t.double() for t in (q, w, c)]
    expected = model.pair_score(wide[0][:, None], None if w is None else wide[1][:, None], wide[2][None])
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(scores.true_scores(model.pair_score, q, w, c[:5]), found[:, :5].diagonal())


@pytest.mark.parametrize("name", ["kg2e", "kg2e-kl"])
@pytest.mark.parametrize(("dim", "num_queries", "num_candidates"), [(5, 5, 37), (130, 3, 70), (1, 1, 1)])
def test_gradients_are_those_of_the_formula(name, dim, num_queries, num_candidates):
    model, *given = tables(name, dim, num_queries, num_candidates)
    upstream = torch.randn(num_queries, num_candidates, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    given = [t.requires_grad_() for t in given]
    found = scores.score_candidates(model.pair_score, *given)
    assert "Scores" in found.grad_fn.name(), "by a kernel, not by the formula"
    q, w, c = wide = [t.detach().double().requires_grad_() for t in given]
    expected = model.pair_score(q[:, None], w[:, None], c[None])
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    gradients = torch.autograd.grad(found, given, upstream)
    of_wide = torch.autograd.grad(expected, wide, upstream.double())
    for gradient, exact in zip(gradients, of_wide, strict=True):
        torch.testing.assert_close(gradient.double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "dim"), FORMULAS)
def test_counts_are_those_of_the_scores(name, dim):
    model, q, w, c = tables(name, dim)
    c[7::3] = c[7]
    found = scores.score_candidates(model.pair_score, q, w, c)
    assert torch.equal(found[:, 7::3], found[:, 7:8].expand_as(found[:, 7::3])), "equal rows tie"
    true = scores.true_scores(model.pair_score, q, w, c[7:8].expand(5, -1))
    own = torch.full((5,), 7, device=DEVICE)
    begin = torch.zeros(5, dtype=torch.int64, device=DEVICE)
    members = torch.tensor([1, 10], dtype=torch.int32, device=DEVICE)
    batch = RankingBatch(model.pair_score, q, w, true, own, begin, begin + 2, members)
    higher, equal = scores.count_above(batch, c, 0)
    found[:, [1, 7, 10]] = torch.nan
    assert torch.equal(higher, (found > true[:, None]).sum(1))
    assert torch.equal(equal, (found == true[:, None]).sum(1))
    assert (equal > 5).all()


def test_what_kernels_do_not_know_is_left_to_the_formula():
    """A gradient of OTE, rows of a query's own, other precisions, and models without such a formula."""
    model, q, w, c = tables("ote", 6)
    expected = model.pair_score(q[:, None], None, c[None])
    for given in (q.double(), q.clone().requires_grad_()):
        assert scores.score_candidates(model.pair_score, given, w, c.to(given.dtype)).dtype == given.dtype
    ids = torch.arange(10, device=DEVICE).view(5, 2)
    found = scores.score_candidates(model.pair_score, q, w, c, ids)
    torch.testing.assert_close(found, expected.gather(1, ids))
    assert formula_of(model.pair_score).unroll == 6
    assert formula_of(model_class("conve")(3, 2, 12).pair_score) is None
