"""The map of entities: which are shown, where in two dimensions, of which type, and on which side of each relation."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from pairre.graph import Graph
from pairre.models import Model
from pairre.support.errors import MissingExtraError

Method = Literal["pca", "tsne"]
MOST_POINTS = 3000
MOST_TYPES = 8  # and tails of a relation that have a colour of their own
MOST_LABELS = 400  # entities that may be named on the map, as far as there is room
MIN_COLOURED = 0.5  # of the heads of a relation, or they are not coloured by their tail
_TYPE_NAMES = {"type", "is_a", "isa", "instance_of", "instanceof", "instance of", "has_type", "p31"}


def check_method(method: Method) -> None:
    """Notify early what is missing."""
    if method == "tsne":
        try:
            import sklearn.manifold  # noqa: F401
        except ImportError:
            raise MissingExtraError("--map tsne", "plots") from None


def entity_map(graph: Graph, model: Model, method: Method = "pca") -> dict[str, Any]:
    """Return coordinates and names of the most frequent entities, types and sides of relations, as plain values."""
    ends = graph.train[:, [0, 2]].long()
    degree = torch.bincount(ends.flatten(), minlength=graph.num_entities)
    shown = degree.argsort(descending=True, stable=True)[:MOST_POINTS].sort().values
    x, y = _flat(_rows(model, shown), method).T.tolist()
    place = torch.full((graph.num_entities,), -1)
    place[shown] = torch.arange(len(shown))
    result: dict[str, Any] = {
        "x": [round(v, 4) for v in x],
        "y": [round(v, 4) for v in y],
        "name": [graph.show_entity(i) for i in shown.tolist()],
        "labelled": degree[shown].argsort(descending=True, stable=True)[:MOST_LABELS].tolist(),
        "num_entities": graph.num_entities,
        "method": {"pca": "principal components", "tsne": "t-SNE"}[method],
    }
    for key, column in (("heads", 0), ("tails", 2)):
        on_map = place[graph.train[:, column].long()]
        pairs = torch.stack([graph.train[:, 1].long(), on_map], 1)[on_map >= 0]
        pairs = torch.unique(pairs, dim=0)
        sizes = torch.bincount(pairs[:, 0], minlength=graph.num_relations).tolist()
        result[key] = [part.tolist() for part in torch.split(pairs[:, 1], sizes)]
    result["tail_values"] = _tail_values(graph, place, result["heads"])
    return {**result, **_types(graph, shown)}


def _rows(model: Model, ids: Tensor) -> Tensor:
    """Return entity vectors as the score uses them, or as stored where that depends on the relation."""
    with torch.no_grad():
        return model.as_vectors(model.entity_rows(ids.to(model.device))).float().cpu().nan_to_num()


def _flat(rows: Tensor, method: Method) -> Tensor:
    """Return rows in two dimensions, [N, 2]."""
    if method == "tsne":
        from sklearn.manifold import TSNE

        perplexity = min(30.0, max(1.0, (len(rows) - 1) / 3))
        return torch.from_numpy(TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(rows.numpy()))
    with torch.random.fork_rng(devices=[]):  # it draws where to start from
        torch.manual_seed(0)
        _, _, directions = torch.pca_lowrank(rows, q=min(8, *rows.shape), niter=8)
    flat = (rows - rows.mean(0)) @ directions[:, :2]
    return torch.nn.functional.pad(flat, (0, 2 - flat.shape[1]))


def _tail_values(graph: Graph, place: Tensor, heads: list[list[int]]) -> list[dict[str, Any] | None]:
    """Return for each relation its most frequent tails and which of them each head on the map has (the first of them).

    None for a relation most of whose heads have other tails, so that colours would say little.
    """
    triples = graph.train[graph.train[:, 1].argsort(stable=True)].long()
    sizes = torch.bincount(triples[:, 1], minlength=graph.num_relations).tolist()
    values: list[dict[str, Any] | None] = []
    for own, points in zip(torch.split(triples, sizes), heads, strict=True):
        tails, counts = torch.unique(own[:, 2], return_counts=True)
        top = tails[counts.argsort(descending=True, stable=True)[:MOST_TYPES]].tolist()
        number = {tail: i for i, tail in enumerate(top)}
        ends = zip(place[own[:, 0]].tolist(), own[:, 2].tolist(), strict=True)
        first: dict[int, int] = {}
        for point, tail in sorted(ends, key=lambda end: -number.get(end[1], MOST_TYPES)):
            if tail in number:
                first[point] = number[tail]  # the most frequent one comes last, and stays
        found = [first.get(point) for point in points]
        enough = len(top) > 1 and sum(f is not None for f in found) >= max(1, MIN_COLOURED * len(points))
        values.append({"names": [graph.show_entity(tail) for tail in top], "of": found} if enough else None)
    return values


def _types(graph: Graph, shown: Tensor) -> dict[str, Any]:
    """Return the most frequent types and that of each entity: as known, or by a relation that is named so."""
    if known := graph.entity_types:
        counts = torch.bincount(known.types, minlength=len(known.names))
        top = counts.argsort(descending=True, stable=True)[:MOST_TYPES].tolist()
        number = {value: i for i, value in enumerate(top)}
        types = [min((number[t] for t in known.of(e) if t in number), default=None) for e in shown.tolist()]
        return {"types": [graph.type_names.show(t) for t in top], "type": types}
    for relation in range(graph.num_relations):
        name = graph.relations[relation]
        if name.replace("#", "/").replace(":", "/").rstrip("/").split("/")[-1].lower() in _TYPE_NAMES:
            triples = graph.train[graph.train[:, 1] == relation].long()
            values, counts = torch.unique(triples[:, 2], return_counts=True)
            top = values[counts.argsort(descending=True, stable=True)[:MOST_TYPES]].tolist()
            number = {value: i for i, value in enumerate(top)}
            of = {h: number[t] for h, t in triples[:, [0, 2]].flip(0).tolist() if t in number}
            if of:
                return {"types": [graph.show_entity(e) for e in top], "type": [of.get(e) for e in shown.tolist()]}
    return {}
