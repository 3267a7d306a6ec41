"""A table whose rows are in two pieces trains, evaluates and answers to the same bits: nobody needs the whole one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import pairre
from pairre.inference import discover, explain, predict, similar
from pairre.models import LocalRows, RowSource
from pairre.runs import Run
from pairre.settings import override
from pairre.tables import Gathered, LocalTable, local_table
from pairre.training.step import Trainer

FIRST = 17  # entities of the first piece
MODELS = {
    "pairre": [],
    "pairre-adagrad": ["train.optimizer=adagrad"],
    "transr": ["model.name=transr"],
    "complex": ["model.name=complex", "model.reciprocal=true", "loss.relation_weight=0.5"],
    "rgcn": ["model.name=rgcn"],
    "ote": ["model.name=ote"],
}


@dataclass(frozen=True)
class GatheredPieces(Gathered):
    """Rows of a step, and what each piece needs to update its own."""

    parts: tuple[Gathered, ...]


class Pieces(RowSource):
    """A table in pieces: what training asks of it (`EmbeddingTable`), and what models do (`RowSource`)."""

    def __init__(self, parts: list[Tensor], recipe, constraint) -> None:
        self.parts: list[LocalTable] = [local_table(part, recipe, constraint) for part in parts]
        self.first = [0, len(parts[0])]
        self.num_rows, self.width = sum(map(len, parts)), parts[0].shape[1]

    def owned(self, ids):
        for first, part in zip(self.first, self.parts, strict=True):
            yield part, torch.where((ids >= first) & (ids < first + part.num_rows), ids - first, -1)

    # --- a table that learns ---

    def gather(self, ids, step=None, groups=None):
        if step is None:
            return self.gather_stored(ids)
        parts = tuple(part.gather(own, step) for part, own in self.owned(ids))
        rows = torch.where((ids < self.first[1])[:, None], *(part.rows.detach() for part in parts))
        return GatheredPieces(rows.requires_grad_(), ids, parts[0].groups, parts)

    def update(self, gathered, gradient, step):
        for part, own in zip(self.parts, gathered.parts, strict=True):
            part.update(own, gradient, step)

    def flush(self, step):
        for part in self.parts:
            part.flush(step)

    def restart(self, step):
        for part in self.parts:
            part.restart(step)

    def local_rows(self):
        for first, part in zip(self.first, self.parts, strict=True):
            yield from ((first + start, rows) for start, rows in part.local_rows())

    def state(self):
        return {f"{i}.{name}": value for i, part in enumerate(self.parts) for name, value in part.state().items()}

    # --- a source of rows ---

    def gather_stored(self, ids):
        found = [LocalRows(part.table).gather(own.clamp(min=0)) for part, own in self.owned(ids)]
        return torch.where((ids < self.first[1])[..., None], *found)

    def chunks(self, size):
        for first, part in zip(self.first, self.parts, strict=True):
            yield from ((first + start, rows) for start, rows in LocalRows(part.table).chunks(size))

    def write(self, ids, rows):
        for part, own in self.owned(ids):
            part.table[own[own >= 0]] = rows[own >= 0]


def in_two_pieces(trainer):
    """Put the entity rows of a trainer into two tensors of their own; its model loses the table that it had."""
    model = trainer.model
    table = model.entity.detach()
    constraint = (lambda rows: model.constrain("entity", rows)) if "entity" in model.constraints else None
    pieces = Pieces([table[:FIRST].clone(), table[FIRST:].clone()], trainer.recipe.train, constraint)
    trainer.tables.tables["entity"] = pieces
    model.set_rows(pieces)
    del model.entity
    return trainer


@pytest.fixture(scope="module", params=list(MODELS.values()), ids=list(MODELS))
def runs(request):
    """The same run, with a table that is whole and with one in two pieces."""
    from conftest import QUICK, planted_graph

    graph = planted_graph()
    recipe = override(QUICK, request.param)
    trainers = [Trainer(graph, recipe, torch.device("cpu")) for _ in range(2)]
    in_two_pieces(trainers[1])
    losses = []
    for trainer in trainers:
        trainer.advance(20)
        trainer.flush()
        trainer.check_finite()
        losses.append(trainer.mean_loss(20))
        trainer.model.requires_grad_(False)
    assert losses[0] == losses[1]
    return [Run(graph, recipe, trainer.model) for trainer in trainers]


def test_training_ends_in_the_same_rows(runs):
    whole, pieces = (run.model for run in runs)
    assert not hasattr(pieces, "entity")
    rows = torch.cat([rows for _, rows in pieces.stored["entity"].chunks(5)])
    assert torch.equal(rows, whole.entity)
    assert torch.equal(pieces.relation, whole.relation)


def test_evaluation_finds_the_same(runs):
    whole, pieces = (pairre.evaluate(run, by="relation", plausible=True) for run in runs)
    assert whole == pieces
    triples = runs[0].graph.test.long()
    for side in ("tail", "head"):
        expected, found = (run.model.score_all(triples, side) for run in runs)
        assert torch.equal(expected, found)


QUERIES = ({"head": "e3", "relation": "next"}, {"relation": "beside", "tail": "e30"}, {"head": "e3", "tail": "e4"})


def test_answers_are_the_same(runs):
    for query in QUERIES:
        whole, pieces = (predict(run, **query, k=12, known=True) for run in runs)
        assert whole == pieces
        assert whole[0].probability is not None
    whole, pieces = (discover(run, k=20) for run in runs)
    assert whole == pieces
    whole, pieces = (similar(run, "e3") for run in runs)
    for one, other in zip(whole, pieces, strict=True):  # products of matrices of other shapes are rounded otherwise
        assert one.similarity == pytest.approx(other.similarity, abs=1e-6)
    assert (runs[0].entity_vectors().array == runs[1].entity_vectors().array).all()


def test_reasons_are_the_same(runs):
    whole, pieces = (explain(run, "e3", "beside", "e4").as_dict()["facts"] for run in runs)
    assert [found["fact"] for found in whole] == [found["fact"] for found in pieces]
    for one, other in zip(whole, pieces, strict=True):  # a sum over all candidates is one over chunks of them
        assert one["fall"] == pytest.approx(other["fall"], rel=1e-4)
