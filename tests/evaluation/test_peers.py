"""The same parameters in PyKEEN's models give the same scores: two implementations that know nothing of each other."""

import math

import pytest
import torch

from pairre.models import model_class, models

pytest.importorskip("pykeen", reason="PyKEEN is not installed (the peers extra)")
from pykeen.nn import modules

NUM_ENTITIES, NUM_RELATIONS, DIM = 7, 3, 6


def parts_of(x, number):
    """Entities have all parts in one vector, relations one by one."""
    return x.vector.chunk(number, -1) if hasattr(x, "vector") else vars(x).values()


def complex_of(x):
    return torch.complex(*parts_of(x, 2))


def quaternions(x):
    return torch.stack([*parts_of(x, 4)], -1)


def unit_quaternions(r):
    return torch.nn.functional.normalize(quaternions(r), dim=-1)


def square(matrix):
    return matrix.reshape(*matrix.shape[:-1], DIM, DIM)


def unit(x):
    return torch.nn.functional.normalize(x, dim=-1)


def in_plane(r):
    """TransH's translation without its part along the normal; PyKEEN only asks for that softly."""
    n = unit(r.normal)
    return r.vector - (r.vector * n).sum(-1, keepdim=True) * n


# What PyKEEN's score becomes: its expected likelihood is −2 × ours without the constant, its QuatE has the other sign.
DIFFERS = {
    "kg2e": lambda score: -(score + DIM * math.log(2 * math.pi)) / 2,
    "quate": lambda score: -score,
}
# Name of our model → PyKEEN's interaction, and entity (or head and tail) and relation parts as it wants them.
PEERS = {
    "pairre": (modules.PairREInteraction(p=1), lambda e: unit(e.vector), lambda r: (r.head_scale, r.tail_scale)),
    "triplere": (
        modules.TripleREInteraction(p=1, u=1.0),
        lambda e: unit(e.vector),
        lambda r: (r.head_scale, r.middle, r.tail_scale),
    ),
    "transe": (modules.TransEInteraction(p=1), lambda e: e.vector, lambda r: r.vector),
    "transh": (modules.TransHInteraction(p=2), lambda e: e.vector, lambda r: (unit(r.normal), in_plane(r))),
    "transr": (
        modules.TransRInteraction(p=2, power_norm=False),
        lambda e: e.vector,
        lambda r: (r.vector, square(r.matrix).mT),
    ),
    "transd": (
        modules.TransDInteraction(p=2, power_norm=False),
        lambda e: (e.vector, e.projection),
        lambda r: (r.vector, r.projection),
    ),
    "se": (modules.SEInteraction(p=1), lambda e: e.vector, lambda r: (square(r.head), square(r.tail))),
    "rotate": (modules.RotatEInteraction(), complex_of, lambda r: torch.polar(torch.ones_like(r.phase), r.phase)),
    "rescal": (modules.RESCALInteraction(), lambda e: e.vector, lambda r: square(r.matrix)),
    "distmult": (modules.DistMultInteraction(), lambda e: e.vector, lambda r: r.vector),
    "hole": (modules.HolEInteraction(), lambda e: e.vector, lambda r: r.vector),
    "complex": (modules.ComplExInteraction(), complex_of, complex_of),
    "cp": (
        modules.CPInteraction(),
        (lambda h: h.head.unsqueeze(-2), lambda t: t.tail.unsqueeze(-2)),
        lambda r: r.vector.unsqueeze(-2),
    ),
    "simple": (
        modules.SimplEInteraction(),
        (lambda h: (h.head, h.tail), lambda t: (t.tail, t.head)),
        lambda r: (r.forward, r.inverse),
    ),
    "kg2e": (
        modules.KG2EInteraction(similarity="el", similarity_kwargs={"exact": False}),
        lambda e: (e.mean, e.variance),
        lambda r: (r.mean, r.variance),
    ),
    "kg2e-kl": (
        modules.KG2EInteraction(similarity="kl", similarity_kwargs={"exact": True}),
        lambda e: (e.mean, e.variance),
        lambda r: (r.mean, r.variance),
    ),
    "quate": (modules.QuatEInteraction(), quaternions, unit_quaternions),
}


@pytest.mark.parametrize("name", PEERS)
def test_scores_are_those_of_pykeen(name):
    """Small parameters, so that PyKEEN's bounds on projected entities (TransR, TransD) do not act.

    PyKEEN's RotatE takes the Euclidean norm over features where the paper adds moduli: so it gets features one by one.
    """
    interaction, entity, relation = PEERS[name]
    model = model_class(name)(NUM_ENTITIES, NUM_RELATIONS, DIM)
    model.initialise(0.2, seed=0)
    model.double()
    random = torch.Generator().manual_seed(0)
    triples = torch.stack([torch.randint(n, (20,), generator=random) for n in (7, 3, 7)], 1)
    of_head, of_tail = entity if isinstance(entity, tuple) else (entity, entity)
    h = of_head(model.parts("entity", model.entity[triples[:, 0]]))
    t = of_tail(model.parts("entity", model.entity[triples[:, 2]]))
    r = relation(model.parts("relation", model.relation[triples[:, 1]]))
    if name == "rotate":
        model.turn = math.pi / 0.2  # values drawn from ±0.2 stand for phases of ±π
        r = r**model.turn
        expected = sum(interaction(*(x[:, [i]] for x in (h, r, t))) for i in range(DIM))
    else:
        expected = interaction.double()(h, r, t)
    torch.testing.assert_close(model.score(triples), DIFFERS.get(name, lambda score: score)(expected))


def test_every_model_that_pykeen_has_is_compared():
    without = {"rotate+pair", "ote", "gc-ote", "gc-ote-full", "seek", "rgcn", "rgcn-blocks"}
    as_another = {"simple+", "complex-nne", "complex-nne-aer", "transparse-share", "transparse-separate"}
    assert {model.name for model in models()} - as_another == {*PEERS, "conve", *without}


def test_conve_is_that_of_pykeen(graph):
    """The network with all of its weights, statistics of batches included."""
    model = model_class("conve")(NUM_ENTITIES, NUM_RELATIONS, 12)
    model.initialise(0.5, seed=0)
    model.init_from_graph(graph, seed=0)
    random = torch.Generator().manual_seed(0)
    for tensor in (model.weights.data, *(b for name, b in model.named_buffers() if name.startswith("mean"))):
        tensor.add_(torch.randn(tensor.shape, generator=random) / 10)
    for name, buffer in model.named_buffers():
        if name.startswith("variance"):
            buffer.add_(torch.rand(buffer.shape, generator=random))
    peer = modules.ConvEInteraction(embedding_dim=12, embedding_width=4, embedding_height=3).eval()
    dense = model.dense
    entry, convolution, middle = (peer.hr2d[i] for i in (0, 2, 3))
    with torch.no_grad():
        convolution.weight.copy_(dense.filters.view_as(convolution.weight))
        convolution.bias.copy_(dense.filter_bias)
        peer.hr1d[0].weight.copy_(dense.matrix)
        peer.hr1d[0].bias.copy_(dense.bias)
        norms = ((entry, "input"), (middle, "maps"), (peer.hr1d[2], "hidden"))
        for norm, layer in norms:
            norm.weight.copy_(getattr(dense, f"norm_{layer}")[0])
            norm.bias.copy_(getattr(dense, f"norm_{layer}")[1])
    triples = torch.stack([torch.randint(n, (20,), generator=random) for n in (7, 3, 7)], 1)
    for row, (side, kept, asked) in enumerate((("tail", 0, 2), ("head", 2, 0))):  # each with its own statistics
        with torch.no_grad():
            for norm, layer in norms:
                norm.running_mean.copy_(getattr(model, f"mean_{layer}")[row])
                norm.running_var.copy_(getattr(model, f"variance_{layer}")[row])
        relation = model.relation_rows(triples[:, 1], side)
        anchor, true = (model.parts("entity", model.entity[triples[:, column]]) for column in (kept, asked))
        expected = peer(anchor.vector, relation, (true.vector, true.bias.squeeze(-1)))
        torch.testing.assert_close(model.score(triples, side), expected, rtol=1e-4, atol=1e-5)
