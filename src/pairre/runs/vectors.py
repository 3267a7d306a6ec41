"""The vectors of a run, in chunks: those of entities as the score uses them, those of relations as they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pairre.models import Model

Table = Literal["entities", "relations"]
_ELEMENTS = 1 << 24  # of a chunk


class Vectors(NamedTuple):
    """Names and their vectors, in the same order."""

    names: list[str]
    array: np.ndarray  # [N, D] float32


def vector_width(model: Model, table: Table) -> int:
    """Return the number of features of a vector of a table."""
    with torch.no_grad():
        if table == "relations":
            return model.relation_vectors(torch.zeros(1, dtype=torch.int64, device=model.device)).shape[1]
        first = torch.zeros(1, dtype=torch.int64, device=model.device)
        return model.as_vectors(model.entity_rows(first)).shape[1]


def vector_chunks(model: Model, table: Table = "entities") -> Iterator[tuple[int, Tensor]]:
    """Yield the vectors of a table in chunks [n, D] of float32 on the model's device, each with the id of its first.

    See `Model.as_vectors` and `Model.relation_vectors`. Where processes share the rows, each yields all of them.
    """
    size = max(1, _ELEMENTS // vector_width(model, table))
    with torch.no_grad():
        if table == "entities" and model.processes is None:
            for start, rows in model.entities.chunks(size):
                yield start, model.as_vectors(rows).float()
            return
        num = model.num_entities if table == "entities" else model.num_relations
        for start in range(0, num, size):
            ids = torch.arange(start, min(start + size, num), device=model.device)
            rows = model.as_vectors(model.entity_rows(ids)) if table == "entities" else model.relation_vectors(ids)
            yield start, rows.float()
