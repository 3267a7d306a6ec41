"""Each loss against its formula written out positive by positive, and the rows where every negative is known."""

import math

import pytest
import torch

from pairre.losses import LOSSES
from pairre.recipe import LossRecipe

POSITIVE = torch.tensor([-1.0, -4.0, -7.5], dtype=torch.float64)
NEGATIVE = torch.tensor([[-3.0, -9.0, -2.0], [-6.5, -6.0, -30.0], [-1.0, -2.0, -3.0]], dtype=torch.float64)
KNOWN = torch.tensor([[False, True, False], [False, False, False], [True, False, False]])
WEIGHT = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
RECIPE = LossRecipe(margin=6.0, temperature=0.7)


def log_sigmoid(x):
    return -math.log1p(math.exp(-x))


def by_hand(name, s, negatives):
    margin = RECIPE.margin
    if name == "self-adversarial":
        shares = [math.exp(RECIPE.temperature * n) for n in negatives]
        false = sum(p / sum(shares) * log_sigmoid(-margin - n) for p, n in zip(shares, negatives, strict=True))
        return -(log_sigmoid(margin + s) + false) / 2
    if name == "cross-entropy":
        return -math.log(math.exp(s) / (math.exp(s) + sum(map(math.exp, negatives))))
    if name == "margin":
        return sum(max(0.0, margin - s + n) for n in negatives) / len(negatives)
    return -log_sigmoid(margin + s) - sum(log_sigmoid(-margin - n) for n in negatives) / len(negatives)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("masked", [True, False])
def test_loss_is_its_formula(name, masked):
    known = KNOWN if masked else torch.zeros_like(KNOWN)
    rows = zip(POSITIVE.tolist(), NEGATIVE.tolist(), known.tolist(), WEIGHT.tolist(), strict=True)
    expected = sum(
        w * by_hand(name, s, [n for n, k in zip(row, skip, strict=True) if not k]) for s, row, skip, w in rows
    )
    loss = LOSSES[name](POSITIVE, NEGATIVE, known if masked else None, WEIGHT, RECIPE)
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize("name", LOSSES)
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


def test_no_gradient_flows_through_the_self_adversarial_weights():
    negative = NEGATIVE.clone().requires_grad_()
    LOSSES["self-adversarial"](POSITIVE, negative, None, WEIGHT, RECIPE).backward()
    share = (RECIPE.temperature * NEGATIVE).softmax(1)
    expected = WEIGHT[:, None] * share * torch.sigmoid(RECIPE.margin + NEGATIVE) / 2
    torch.testing.assert_close(negative.grad, expected)
