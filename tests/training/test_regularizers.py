"""Each penalty against its formula, triple by triple, its gradients against finite differences, and what is refused."""

from types import SimpleNamespace

import pytest
import torch

import pairre
from conftest import resumed
from pairre.models import EntityRows, models
from pairre.settings import RegularizerRecipe, override, resolve
from pairre.support.errors import RecipeError
from pairre.training.regularizers import REGULARIZERS, Regularizer
from pairre.training.step import Trainer

PRODUCTS = [model for model in models() if model.linear_in_relation]
RECIPE = RegularizerRecipe(name="er", weight=0.5, query_weight=1.5, equivariance=0.2)
SIZE = 5


def scored_batch(model, side):
    """Rows of anchors, true entities and relations as a step has them, and nothing else."""
    random = torch.Generator().manual_seed(1)
    sizes = ((2 * SIZE, model.entity.shape[1]), (SIZE, model.relation.shape[1]))
    entity, relation = (torch.randn(n, width, generator=random, dtype=torch.float64) for n, width in sizes)
    rows = EntityRows(entity.requires_grad_(), SIZE)
    batch = SimpleNamespace(side=side, size=SIZE)
    return SimpleNamespace(batch=batch, stored=rows, entity=rows, relation=relation.requires_grad_())


def by_gradients(model, side, scored):
    """|h|², |t|², |u|², |v|² and u · v of every triple, with u and v the gradients of its score in tail and head."""
    own = "tail" if model.reciprocal else side
    parts = []
    for i in range(SIZE):
        anchor, true, relation = (
            scored.entity.anchor_and_true[i],
            scored.entity.anchor_and_true[SIZE + i],
            scored.relation[i],
        )
        head, tail = (anchor, true) if own == "tail" else (true, anchor)
        h, t = (model.prepare_entities(x[None], end, None)[0] for x, end in ((head, "head"), (tail, "tail")))
        r = model.parts("relation", relation[None])

        def score(h, t, r=r):
            return (model.tail_query(h[None], r)[0] * t).sum()

        v, u = torch.autograd.functional.jacobian(score, (h, t))
        parts.append(torch.stack([h @ h, t @ t, u @ u, v @ v, u @ v]))
    return torch.stack(parts).sum(0).detach()


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("side", ["tail", "head"])
@pytest.mark.parametrize("model_type", PRODUCTS, ids=lambda m: m.name)
def test_dura_and_er_are_their_formulas_for_every_product(model_type, side, reciprocal):
    model = model_type(7, 3, 4, reciprocal=reciprocal).double()
    scored = scored_batch(model, side)
    h, t, u, v, both = by_gradients(model, side, scored)
    with torch.no_grad():
        dura = REGULARIZERS["dura"](model, scored, RECIPE)
        er = REGULARIZERS["er"](model, scored, RECIPE)
        term = Regularizer(RECIPE, model)(scored)
    torch.testing.assert_close(dura, h + t + 1.5 * (u + v))
    a, b = 0.4 * 1.5, 0.6 * 1.5  # a + b = ω, (b − a) / (a + b) = ε
    torch.testing.assert_close(er, h + t + a * (u + v + 2 * both) + b * (u + v - 2 * both))
    torch.testing.assert_close(term, 0.5 * er / SIZE)


def test_dura_of_rescal_and_of_complex_as_their_paper_writes_it():
    rescal, over_complex = (
        next(m for m in PRODUCTS if m.name == name)(7, 3, 4).double() for name in ("rescal", "complex")
    )
    recipe = RegularizerRecipe(name="dura")
    scored = scored_batch(rescal, "tail")
    h, t = scored.entity.anchor_and_true.split(SIZE)
    expected = sum(
        h[i] @ h[i] + t[i] @ t[i] + (m.T @ h[i]).square().sum() + (m @ t[i]).square().sum()
        for i, m in enumerate(scored.relation.view(SIZE, 4, 4))
    )
    torch.testing.assert_close(REGULARIZERS["dura"](rescal, scored, recipe), expected)
    scored = scored_batch(over_complex, "tail")
    h, t, r = (
        torch.complex(*x.chunk(2, 1)).abs() for x in (*scored.entity.anchor_and_true.split(SIZE), scored.relation)
    )
    expected = (h**2 + t**2 + (h * r) ** 2 + (t * r) ** 2).sum()
    torch.testing.assert_close(REGULARIZERS["dura"](over_complex, scored, recipe), expected)


@pytest.mark.parametrize("name", ["complex", "transe", "quate"])
def test_powers_are_sums_over_the_parameters(name):
    model = next(m for m in models() if m.name == name)(7, 3, 4).double()
    scored = scored_batch(model, "tail")
    moduli = [
        x.view(len(x), model.num_components, -1).norm(dim=1) for x in (scored.entity.anchor_and_true, scored.relation)
    ]
    values = [x.abs() for x in (scored.entity.anchor_and_true, scored.relation)]
    for penalty, expected in (
        ("l2", sum((x**2).sum() for x in values)),
        ("n3", sum((x**3).sum() for x in values)),
        ("n3-modulus", sum((x**3).sum() for x in moduli)),
    ):
        torch.testing.assert_close(REGULARIZERS[penalty](model, scored, RECIPE), expected)


@pytest.mark.parametrize("name", ["dura", "er"])
@pytest.mark.parametrize("model_type", PRODUCTS, ids=lambda m: m.name)
def test_gradients_match_finite_differences(model_type, name):
    model = model_type(7, 3, 4).double()
    there = scored_batch(model, "head")

    def penalty(entity, relation):
        rows = EntityRows(entity, SIZE)
        scored = SimpleNamespace(batch=there.batch, stored=rows, entity=rows, relation=relation)
        return REGULARIZERS[name](model, scored, RECIPE)

    assert torch.autograd.gradcheck(penalty, (there.entity.rows, there.relation))


def test_er_without_equivariance_is_dura_and_never_negative():
    model = next(m for m in PRODUCTS if m.name == "complex")(7, 3, 4).double()
    scored = scored_batch(model, "tail")
    plain = RegularizerRecipe(name="er", equivariance=0.0)
    assert REGULARIZERS["er"](model, scored, plain) == REGULARIZERS["dura"](model, scored, plain)
    for equivariance in (-1.0, 1.0):
        assert REGULARIZERS["er"](model, scored, RegularizerRecipe(equivariance=equivariance)) > 0


@pytest.mark.parametrize("settings", [["model.name=rescal"], ["model.name=complex", "model.reciprocal=true"]])
def test_a_step_shrinks_what_is_penalised_and_resumes_to_the_same_bits(graph, quick, settings):
    common = [*settings, "loss.name=cross-entropy", "sampling.negatives=0", "regularizer.name=er"]
    lengths = {}
    for weight in (0.0, 1.0):
        recipe = override(quick, [*common, f"regularizer.weight={weight}"])
        lengths[weight] = pairre.train(graph, recipe, progress=False, device="cpu").model.entity.norm()
    assert lengths[1.0] < 0.9 * lengths[0.0]
    recipe = override(quick, [*common, "regularizer.weight=0.1"])
    resumed(lambda: Trainer(graph, recipe, torch.device("cpu")))


@pytest.mark.parametrize("model", [m.name for m in models() if not m.linear_in_relation])
@pytest.mark.parametrize("name", ["dura", "er"])
def test_models_that_are_no_products_refuse_what_is_made_for_them(graph, name, model):
    settings = [f"model.name={model}", "model.dim=12", f"regularizer.name={name}", "regularizer.weight=0.1"]
    with pytest.raises(RecipeError, match=rf"regularizer\.name: {model.replace('+', '.')} has no .*; .*: rescal, "):
        resolve(graph, None, settings)


def test_equivariance_is_between_its_bounds(graph):
    for value in (-1.5, 1.5):
        with pytest.raises(RecipeError, match=r"regularizer\.equivariance"):
            resolve(graph, None, [f"regularizer.equivariance={value}"])
