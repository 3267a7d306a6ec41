"""Each loss against its formula written out positive by positive, and the rows where every negative is known."""

import math
from dataclasses import replace

import pytest
import torch

from pairre.kernels.reference import scores
from pairre.settings import LossRecipe, override
from pairre.training.losses import LOSSES, SEPARABLE
from pairre.training.step import Trainer

POSITIVE = torch.tensor([-1.0, -4.0, -7.5], dtype=torch.float64)
NEGATIVE = torch.tensor([[-3.0, -9.0, -2.0], [-6.5, -6.0, -30.0], [-1.0, -2.0, -3.0]], dtype=torch.float64)
KNOWN = torch.tensor([[False, True, False], [False, False, False], [True, False, False]])
WEIGHT = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
RECIPE = LossRecipe(margin=6.0, temperature=0.7)


def log_sigmoid(x):
    return -math.log1p(math.exp(-x))


def self_adversarial(s, negatives):
    weights = [math.exp(RECIPE.temperature * n) for n in negatives]
    false = sum(p / sum(weights) * log_sigmoid(-RECIPE.margin - n) for p, n in zip(weights, negatives, strict=True))
    return -(log_sigmoid(RECIPE.margin + s) + false) / 2


def cross_entropy(s, negatives):
    weights = [math.exp(RECIPE.temperature * x) for x in (s, *negatives)]
    return -math.log(weights[0] / sum(weights))


def margin(s, negatives):
    return sum(max(0.0, RECIPE.margin - s + n) for n in negatives) / len(negatives)


def logistic(s, negatives):
    false = sum(log_sigmoid(-RECIPE.margin - n) for n in negatives) / len(negatives)
    return -log_sigmoid(RECIPE.margin + s) - false


# The loss of one positive with negatives that are not known; one that is not here has the general tests below.
FORMULAS = {
    "self-adversarial": self_adversarial,
    "cross-entropy": cross_entropy,
    "margin": margin,
    "logistic": logistic,
}
OVER_NEGATIVES = [name for name in LOSSES if name != "k-vs-all"]


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("masked", [True, False])
def test_loss_is_its_formula(name, masked):
    known = KNOWN if masked else torch.zeros_like(KNOWN)
    rows = zip(POSITIVE.tolist(), NEGATIVE.tolist(), known.tolist(), WEIGHT.tolist(), strict=True)
    expected = sum(
        w * FORMULAS[name](s, [n for n, k in zip(row, skip, strict=True) if not k]) for s, row, skip, w in rows
    )
    loss = LOSSES[name](POSITIVE, NEGATIVE, known if masked else None, WEIGHT, RECIPE)
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize("name", OVER_NEGATIVES)
def test_a_loss_falls_with_the_positive_and_rises_with_the_negatives(name):
    positive, negative = POSITIVE.clone().requires_grad_(), NEGATIVE.clone().requires_grad_()
    loss = LOSSES[name](positive, negative, None, WEIGHT, RECIPE)
    loss.backward()
    assert (positive.grad <= 0).all()
    assert (negative.grad >= 0).all()
    assert positive.grad.sum() < 0 < negative.grad.sum()


@pytest.mark.parametrize("name", OVER_NEGATIVES)
def test_a_loss_is_a_weighted_sum_over_positives(name):
    one_by_one = sum(
        LOSSES[name](POSITIVE[row, None], NEGATIVE[row, None], KNOWN[row, None], WEIGHT[row, None], RECIPE)
        for row in range(len(WEIGHT))
    )
    assert LOSSES[name](POSITIVE, NEGATIVE, KNOWN, WEIGHT, RECIPE).item() == pytest.approx(one_by_one.item())


@pytest.mark.parametrize("name", OVER_NEGATIVES)
def test_a_row_of_known_negatives_is_finite_and_sends_them_no_gradient(name):
    positive, negative = POSITIVE.clone().requires_grad_(), NEGATIVE.clone().requires_grad_()
    known = KNOWN.clone()
    known[1] = True
    loss = LOSSES[name](positive, negative, known, WEIGHT, RECIPE)
    loss.backward()
    assert loss.isfinite()
    assert positive.grad.isfinite().all()
    assert (negative.grad[known] == 0).all()
    assert negative.grad[~known].abs().sum() > 0


@pytest.mark.parametrize("name", sorted(SEPARABLE))
def test_a_separable_loss_is_that_of_positives_and_that_of_negatives(name):
    zero, none = torch.zeros_like(POSITIVE), NEGATIVE[:, :0]

    def value(positive, negative):
        return LOSSES[name](positive, negative, KNOWN[:, : negative.shape[1]], WEIGHT, RECIPE).item()

    apart = value(POSITIVE, none) + value(zero, NEGATIVE) - value(zero, none)
    assert value(POSITIVE, NEGATIVE) == pytest.approx(apart)


def test_k_vs_all_labels_every_entity():
    recipe = LossRecipe(margin=6.0, smoothing=0.3)
    expected = 0.0
    for row, known, weight in zip(NEGATIVE.tolist(), KNOWN.tolist(), WEIGHT.tolist(), strict=True):
        labels = [0.7 * k + 0.3 / 3 for k in known]
        terms = [y * log_sigmoid(6 + s) + (1 - y) * log_sigmoid(-6 - s) for y, s in zip(labels, row, strict=True)]
        expected -= weight * sum(terms) / 3
    assert LOSSES["k-vs-all"](POSITIVE, NEGATIVE, KNOWN, WEIGHT, recipe).item() == pytest.approx(expected)


def test_no_gradient_flows_through_the_self_adversarial_weights():
    negative = NEGATIVE.clone().requires_grad_()
    LOSSES["self-adversarial"](POSITIVE, negative, None, WEIGHT, RECIPE).backward()
    share = (RECIPE.temperature * NEGATIVE).softmax(1)
    expected = WEIGHT[:, None] * share * torch.sigmoid(RECIPE.margin + NEGATIVE) / 2
    torch.testing.assert_close(negative.grad, expected)


@pytest.mark.parametrize("name", ["self-adversarial", "cross-entropy"])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("num", [1, 3, 300, 1500])
def test_the_fused_loss_is_the_loss(name, masked, num):
    fused = pytest.importorskip("pairre.kernels.cuda.loss", reason="triton is not installed")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    random = torch.Generator().manual_seed(0)
    positive, negative = -6 * torch.rand(5, generator=random), -9 * torch.rand(5, num, generator=random)
    known = torch.rand(5, num, generator=random) < 0.3 if masked else None
    weight = torch.rand(5, generator=random)
    if masked:
        known[2] = True
    got, want = (
        (s.to(where, dtype).requires_grad_(), n.to(where, dtype).requires_grad_())
        for s, n, where, dtype in (
            (positive, negative, device, torch.float32),
            (positive, negative, "cpu", torch.float64),
        )
    )
    mask = known if known is None else known.to(device)
    if name == "cross-entropy":
        loss = fused.cross_entropy(*got, mask, weight.to(device), 0.7)
    else:
        loss = fused.self_adversarial(*got, mask, weight.to(device), 6.0, 0.7)
    expected = LOSSES[name](*want, known, weight.double(), LossRecipe(margin=6.0, temperature=0.7))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    gradients = zip(torch.autograd.grad(3 * loss, got), torch.autograd.grad(3 * expected, want), strict=True)
    for a, b in gradients:
        torch.testing.assert_close(a.double().cpu(), b, rtol=1e-4, atol=1e-7)


def test_unit_rows_are_as_torch_has_them():
    fused = pytest.importorskip("pairre.kernels.cuda.loss", reason="triton is not installed")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    random = torch.Generator().manual_seed(0)
    for dim in (1, 5, 2100):
        rows, upstream = (torch.randn(4, dim, generator=random).to(device) for _ in range(2))
        rows[1] = 0
        got, want = rows.clone().requires_grad_(), rows.double().requires_grad_()
        a, b = fused.unit_rows(got), scores.unit_rows(want)
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-6)
        (ga,), (gb,) = torch.autograd.grad(a, got, upstream), torch.autograd.grad(b, want, upstream.double())
        keep = [0, 2, 3]  # at 0 there is no derivative
        torch.testing.assert_close(ga[keep].double(), gb[keep], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OVER_NEGATIVES)
def test_equal_weights_change_no_bit_and_others_change_the_loss(graph, quick, name):
    settings = [f"loss.name={name}", "train.steps=4"]
    ones = torch.ones(len(graph.train))
    ends = []
    for weights in ({}, {"train": 3 * ones}, {"train": ones.cumsum(0)}):
        trainer = Trainer(replace(graph, weights=weights), override(quick, settings), torch.device("cpu"))
        trainer.advance(4)
        ends.append(trainer.model.entity.detach())
    assert torch.equal(ends[0], ends[1])
    assert not torch.allclose(ends[0], ends[2])


def test_the_fused_cross_entropy_takes_scores_whose_rows_are_padded():
    fused = pytest.importorskip("pairre.kernels.cuda.loss", reason="triton is not installed")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    positive, wide = (torch.randn(size, device=device) for size in (4, (4, 16)))
    weight = torch.full((4,), 0.25, device=device)
    losses = []
    for negative in (wide[:, :11], wide[:, :11].contiguous()):
        negative.requires_grad_()
        loss = fused.cross_entropy(positive, negative, None, weight, 1.0)
        losses += [loss, *torch.autograd.grad(loss, negative)]
    assert torch.equal(losses[0], losses[2])
    assert torch.equal(losses[1], losses[3])
