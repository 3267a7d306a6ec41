"""Models beyond two tables: links drawn and hidden, encoders against loops, dropout by the step."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from conftest import split_rows
from pairre.models import Shared, model_class
from pairre.runs import build_model
from pairre.settings import override, validate
from pairre.support.errors import RecipeError
from pairre.training.sampling import relation_groups
from pairre.training.step import Trainer

CPU = torch.device("cpu")


@pytest.fixture
def make(graph, quick):
    return lambda name, *settings: build_model(graph, override(quick, [f"model.name={name}", *settings]), CPU)


def links_of(graph, entity, way):
    """(other end, relation) of every training link that leads to (way 0) or from (1) an entity."""
    own, other = (2, 0) if way == 0 else (0, 2)
    return sorted((t[other], t[1]) for t in graph.train.tolist() if t[own] == entity)


def test_links_are_those_of_train(graph, make):
    model = make("rgcn")
    links = model.links(torch.arange(graph.num_entities))
    for entity in range(graph.num_entities):
        for way in (0, 1):
            there = links.there[entity, way]
            found = zip(
                links.entity[entity, way][there].tolist(), links.relation[entity, way][there].tolist(), strict=True
            )
            assert sorted(found) == links_of(graph, entity, way)


def test_a_step_draws_links_anew_and_again_the_same(graph, make):
    model = make("rgcn").train()
    model.sampled = 2
    everyone, drawn = torch.arange(graph.num_entities), {}
    for step in (0, 1, 0):
        model.step = torch.tensor(step)
        links = model.links(everyone)
        pairs = links.entity * 10 + links.relation
        assert bool(((pairs[..., 0] != pairs[..., 1]) | ~links.there[..., 1]).all())  # without replacement
        assert step not in drawn or torch.equal(drawn[step], pairs)
        drawn[step] = pairs
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("side", ["tail", "head"])
def test_a_triple_does_not_show_itself(graph, make, side):
    model = make("rgcn").train()
    triples = graph.train[:16].long()
    anchor, true = (triples[:, 0], triples[:, 2]) if side == "tail" else (triples[:, 2], triples[:, 0])
    ends = torch.cat([anchor, true])
    whole = model.links(ends)
    hidden = model._without(whole, ends, model._positives(side, ends, triples[:, 1]))
    for row in range(32):
        h, r, t = triples[row % 16].tolist()
        way = 1 if (row < 16) == (side == "tail") else 0
        own = t if way == 1 else h
        for k in range(whole.there.shape[2]):
            same = whole.entity[row, way, k] == own and whole.relation[row, way, k] == r
            assert hidden.there[row, way, k] == (whole.there[row, way, k] and not same)
        assert torch.equal(hidden.there[row, 1 - way], whole.there[row, 1 - way])


def test_rgcn_is_a_mean_over_links(graph, make):
    model = make("rgcn").double()
    dense, r = model.dense, model.parts("relation", model.relation)
    encoded = model.entity_rows(torch.arange(graph.num_entities))
    for entity in range(graph.num_entities):
        messages = [
            torch.einsum("b,bij,j->i", (r.into, r.out)[way][relation], dense.bases, model.entity[other])
            for way in (0, 1)
            for other, relation in links_of(graph, entity, way)
        ]
        expected = dense.self @ model.entity[entity] + torch.stack(messages).mean(0)
        torch.testing.assert_close(encoded[entity], expected)


def test_two_layers_of_rgcn_are_means_over_links(graph, make):
    model = make("rgcn-blocks", "model.dim=10").double()
    dense, r = model.dense, model.parts("relation", model.relation)
    matrices = [
        [[torch.block_diag(*layer.view(-1, 5, 5)) for layer in row.chunk(2)] for row in part]
        for part in (r.into, r.out)
    ]
    values = model.entity
    for layer in range(2):
        rows = []
        for entity in range(graph.num_entities):
            links = [(way, other, s) for way in (0, 1) for other, s in links_of(graph, entity, way)]
            messages = [matrices[way][s][layer] @ values[other] for way, other, s in links]
            rows.append(dense.self[layer] @ values[entity] + torch.stack(messages).mean(0))
        values = torch.stack(rows) if layer else torch.stack(rows).relu()
    torch.testing.assert_close(model.entity_rows(torch.arange(graph.num_entities)), values)
    some = torch.tensor([[3, 1], [3, 0]])
    torch.testing.assert_close(model.entity_rows(some), values[some])
    chunks = torch.cat([rows for _, rows in model.entities.chunks(7)])
    torch.testing.assert_close(chunks, values)


def test_a_triple_does_not_show_itself_by_way_of_a_neighbour(graph, make):
    """In a step that draws all links, a row that only a positive's own link leads to gets no gradient."""
    model = make("rgcn-blocks", "model.dim=10").double().train()
    model.sampled = 8
    triple = graph.train[:1].long()
    ids = {"entity": triple[0, [0, 2]], "relation": triple[:, 1]}
    needed, build = model.rows_needed("tail", ids)
    with torch.no_grad():
        encoded = build({name: getattr(model, name)[some] for name, some in needed.items()})["entity"]
    others = graph.train[(graph.train != graph.train[0]).any(1)]
    model.eval()
    model.attach(replace(graph, train=others), 0.1, 0)
    torch.testing.assert_close(encoded, model.entity_rows(ids["entity"]))


def test_the_context_of_gc_ote_is_what_its_links_say(graph, make):
    model = make("gc-ote").double()
    relation = model.parts("relation", model.prepare_relations(model.relation))
    groups = (model.dim // 16, 16, 16)
    encoded = model.entity_rows(torch.arange(graph.num_entities))
    for entity in range(graph.num_entities):
        own = model.entity[entity]
        expected = [own]
        for way in (0, 1):
            turned = [own]
            for other, r in links_of(graph, entity, way):
                turn, scale = relation.matrix[r].view(groups), relation.scale[r]
                x = model.entity[other].view(groups[0], 16, 1)
                moved = (turn @ x if way == 0 else turn.mT @ x).flatten()
                turned.append(moved * (scale if way == 0 else -scale).exp())
            expected.append(torch.stack(turned).mean(0))
        torch.testing.assert_close(encoded[entity], torch.cat(expected))


def test_the_full_gc_ote_is_the_mean_of_four_distances(graph, make):
    model, ote = make("gc-ote-full").double(), make("ote").double()
    ote.load_state_dict(model.state_dict())
    triples = graph.train[:9].long()
    h, t = (model.parts("entity", model.entity_rows(triples[:, column])) for column in (0, 2))
    r = model.parts("relation", model.relation_rows(triples[:, 1], "tail"))
    f, g = ote.tail_query(h.vector, r)[0], ote.head_query(r, t.vector)[0]
    pairs = ((f, t.vector), (f, t.into), (g, h.vector), (g, h.out))
    expected = sum(ote.pair_score(a, None, b) for a, b in pairs) / 4
    for side in ("tail", "head"):
        torch.testing.assert_close(model.score(triples, side), expected)
    both = (ote.score(triples, side) for side in ("tail", "head"))
    torch.testing.assert_close(sum(ote.pair_score(a, None, b) for a, b in pairs[::2]), sum(both))


@pytest.mark.parametrize("side", ["tail", "head"])
@pytest.mark.parametrize("name", ["gc-ote", "gc-ote-full", "rgcn-blocks"])
def test_a_step_scores_what_ranking_scores(graph, make, side, name):
    """Where a step draws all links: the triples are no links, so that anchors and negatives hide none."""
    model = make(name).double()
    triples, others = graph.valid[:6].long(), torch.arange(graph.num_entities)
    column = 2 if side == "tail" else 0
    expected = model.score_candidates(triples, side, others)
    model.train()
    model.sampled = 8
    ids = {"entity": torch.cat([triples[:, 2 - column], triples[:, column], others]), "relation": triples[:, 1]}
    gradients = []
    for model.chunk in (1000, 5):  # in one piece, and in pieces that are computed again for the gradient
        needed, build = model.rows_needed(side, ids)
        rows = build({name: getattr(model, name)[some] for name, some in needed.items()})
        for groups in (None, relation_groups(triples[:, 1], graph.num_relations, with_rows=False)[1]):
            _, scores = model.score_batch(side, split_rows(rows["entity"], 6), rows["relation"], Shared(groups))
            torch.testing.assert_close(scores, expected)
            weights = torch.arange(scores.numel()).view_as(scores)
            found = torch.autograd.grad((weights * scores).sum(), [model.entity, model.relation], retain_graph=True)
            gradients.append(found)
    for others in gradients[1:]:
        torch.testing.assert_close(others, gradients[0])


def test_dropout_is_a_function_of_the_step(graph, make):
    model = make("conve")
    triples = graph.train[:8].long()
    still = model.score(triples)
    model.step = torch.tensor(0)
    torch.testing.assert_close(model.score(triples), still)  # not while it is used
    x = torch.ones(4, 6, 10)
    model.train()
    zero, again, one = (model._dropped("input", x) for model.step in (torch.tensor(s) for s in (0, 0, 1)))
    assert torch.equal(zero, again)
    assert not torch.equal(zero, one)
    assert zero.unique().tolist() == pytest.approx([0, 1.25])
    maps = model._dropped("maps", torch.ones(50, 32, 10))
    assert bool((maps == maps[..., :1]).all())  # whole maps
    assert maps.mean() == pytest.approx(1, abs=0.05)


def test_statistics_of_batches_are_learnt_and_kept(graph, quick):
    trainer = Trainer(graph, override(quick, ["model.name=conve"]), CPU)
    before = trainer.model.mean_hidden.clone()
    trainer.advance(3)
    assert not torch.equal(before, trainer.model.mean_hidden)
    assert {"model.mean_hidden", "model.variance_maps", "model.weights"} < set(trainer.tensors())


def test_batches_are_normalised_as_pytorch_does(make):
    model = make("conve").double().train()
    for layer, x in (("maps", torch.randn(5, 32, 7).double() * 3 + 1), ("hidden", torch.randn(5, model.dim).double())):
        mean, variance = (getattr(model, f"{name}_{layer}").clone() for name in ("mean", "variance"))
        scale, shift = getattr(model.dense, f"norm_{layer}")
        expected = F.batch_norm(x, mean[0], variance[0], scale, shift, training=True)  # heads keep theirs
        torch.testing.assert_close(model._normalised(layer, "tail", x, model.dense), expected)
        torch.testing.assert_close(getattr(model, f"mean_{layer}"), mean)
        torch.testing.assert_close(getattr(model, f"variance_{layer}"), variance)


def test_conve_learns_statistics_of_each_side(make):
    model = make("conve").train()
    for row, side in enumerate(("tail", "head")):
        before = model.mean_hidden.clone()
        model.make_query(side, model.entity[:4], model.relation[:4])
        changed = (model.mean_hidden != before).any(1)
        assert changed.tolist() == [row == 0, row == 1]


def test_dropout_can_be_set_by_layer(graph, quick, make):
    assert make("conve").dropout == {"input": 0.2, "maps": 0.2, "hidden": 0.3}
    assert make("conve", "model.dropout=[0.1, 0, 0.5]").dropout == {"input": 0.1, "maps": 0, "hidden": 0.5}
    for name, layers in (("conve", "input, maps, hidden"), ("pairre", "none")):
        with pytest.raises(
            RecipeError, match=rf"model\.dropout: a fraction for each layer of {name} expected \({layers}\), not 2"
        ):
            validate(override(quick, ["model.dropout=[0.2, 0.2]"]), graph, model_class(name))


def test_conve_says_which_widths_it_takes():
    with pytest.raises(
        RecipeError, match=r"model\.dim: conve lays vectors out as rectangles of at least 2 × 3, not of 7"
    ):
        model_class("conve")(5, 2, 7)


def test_ote_is_gram_schmidt(make):
    model = make("ote").double()
    matrices = model._matrices(model.parts("relation", model.relation))
    turned = model._matrices(model.parts("relation", model.prepare_relations(model.relation)))
    for matrix, turn in zip(matrices.flatten(0, 1), turned.flatten(0, 1), strict=True):
        rows = []
        for row in matrix:
            for other in rows:
                row = row - (row @ other) * other
            rows.append(row / row.norm())
        torch.testing.assert_close(turn, torch.stack(rows))


def test_ote_scores_by_products_while_it_trains(make):
    model = make("ote").double()
    q, c = torch.randn(5, model.dim).double(), torch.randn(7, model.dim).double()
    torch.testing.assert_close(model.train().score_rows(q, None, c), model.eval().score_rows(q, None, c))


def test_what_ranks_all_entities_leaves_the_model_as_it_is(graph, make):
    """Rows that are encoded once belong to one ranking: others may rank, or train, in the middle of it."""
    model = make("rgcn")
    before, triples = model.entities, graph.train[:4].long()
    rankings = [model.candidate_groups(triples, "tail", 4) for _ in range(2)]
    for groups in rankings:
        next(groups)
        assert model.entities is before
    for groups in rankings:
        groups.close()
    assert model.entities is before
