"""PyG's `HeteroData`: every edge is a triple, whose relation is the type of the edge.

The object is only looked at, so that torch_geometric need not be installed.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from pairre.graph.formats import Layout, TripleColumns
from pairre.graph.formats.registry import NAMES
from pairre.graph.sources.registry import register, with_weights
from pairre.support.errors import GraphError

log = logging.getLogger("pairre")


@register(lambda source: hasattr(source, "edge_types") and hasattr(source, "node_types"), help="PyG's HeteroData")
def read_hetero(source: Any, layout: Layout) -> TripleColumns:
    """Return the edges of all types as triples.

    A node is called by its place in `data[type].name`, a list of texts, if there is one, or else `type:number`. A
    relation is called as the middle of its edge type, or by the whole type if two edge types share it. Weights are
    `edge_weight`, which all edge types have or none; `layout.weights` names another attribute.
    """
    if layout.columns is not None:
        raise GraphError("HeteroData: its edge types are the relations; leave out columns")
    shared = {name for name, number in Counter(relation for _, relation, _ in source.edge_types).items() if number > 1}
    names = {node_type: _node_names(source, node_type) for node_type in source.node_types}
    columns: list[list[pa.Array]] = [[], [], []]
    weights: list[Tensor | None] = []
    used = {node_type: np.zeros(len(found), np.bool_) for node_type, found in names.items()}
    attribute = layout.weights or "edge_weight"
    for edge_type in source.edge_types:
        store, (head, relation, tail) = source[edge_type], edge_type
        ends = _edge_index(edge_type, store, len(names[head]), len(names[tail]))
        label = ":".join(edge_type) if relation in shared else relation
        columns[1].append(pa.array([label] * ends.shape[1], pa.string()).dictionary_encode())
        for column, node_type, ids in ((0, head, ends[0]), (2, tail, ends[1])):
            columns[column].append(names[node_type].take(pa.array(ids)).dictionary_encode())
            used[node_type][ids] = True
        weights.append(getattr(store, attribute, None))
    if num_alone := sum(int((~present).sum()) for present in used.values()):
        log.warning("HeteroData: %s nodes without an edge left out", f"{num_alone:,}")
    triples = TripleColumns(*(pa.chunked_array(column, NAMES) for column in columns))
    return with_weights(triples, _joined(weights, attribute, required=layout.weights is not None))


def _node_names(source: Any, node_type: str) -> pa.Array:
    """Return the names of all nodes of a type, each with another name."""
    store = source[node_type]
    given = getattr(store, "name", None)
    if given is None:
        if store.num_nodes is None:
            raise GraphError(f"HeteroData: set data['{node_type}'].num_nodes, or give its nodes names or features")
        return pc.binary_join_element_wise(f"{node_type}:", pa.array(np.arange(store.num_nodes)).cast(pa.string()), "")
    if not all(isinstance(name, str) and name.strip() for name in given) or len(set(given)) < len(given):
        raise GraphError(f"HeteroData: data['{node_type}'].name: a different text for each node expected")
    return pa.array(list(given), pa.string())


def _edge_index(edge_type: tuple[str, str, str], store: Any, num_heads: int, num_tails: int) -> np.ndarray:
    """Return the ids of heads and tails, int64 [2, E]."""
    index = getattr(store, "edge_index", None)
    if index is None or index.ndim != 2 or len(index) != 2 or torch.as_tensor(index).is_floating_point():
        raise GraphError(f"HeteroData: data[{edge_type}].edge_index: whole numbers of shape [2, E] expected")
    ids = torch.as_tensor(index).detach().cpu().long().numpy()
    for row, size in zip(ids, (num_heads, num_tails), strict=True):
        if len(row) and not 0 <= row.min() <= row.max() < size:
            raise GraphError(
                f"HeteroData: data[{edge_type}].edge_index: a number without a node, as there are {size:,}"
            )
    return ids


def _joined(weights: list[Tensor | None], attribute: str, required: bool) -> np.ndarray | None:
    """Return the weights of all edge types, or None if none has any."""
    present = [torch.as_tensor(part).detach().cpu().double().flatten() for part in weights if part is not None]
    if not present and not required:
        return None
    if len(present) < len(weights):
        raise GraphError(f"HeteroData: {len(weights) - len(present)} edge types have no {attribute}; give it to all")
    return torch.cat(present).numpy()
