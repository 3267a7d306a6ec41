"""From columns of names to a graph: vocabularies, ids, a random split or given ones, weights, and what is warned of."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from pairre.graph.annotations import Annotations
from pairre.graph.formats import Layout, TripleColumns
from pairre.graph.formats.rdf_terms import BLANK_NODES, LISTS, LITERALS
from pairre.graph.graph import SPLITS, Graph, Split
from pairre.graph.selection import found_in, select_relations
from pairre.graph.split import distinct, distinct_weighted, num_held_out, split_rows
from pairre.graph.vocabulary import MAX_TEXT, Vocabulary
from pairre.support.errors import GraphError

log = logging.getLogger("pairre")


def split_graph(
    columns: TripleColumns,
    layout: Layout,
    where: Path | str,
    name: str,
    fractions: tuple[float, float, float],
    seed: int,
) -> Graph:
    """Return the graph of triples that are split here; `where` is what messages call their source."""
    [columns] = select_relations([columns], layout.only, layout.exclude, where)
    entities, relations, (every_triple,), annotations = _encode([columns], where)
    sizes, weight = (len(entities), len(relations)), columns.weight
    if weight is None:
        triples = distinct(every_triple, *sizes)
    else:
        triples, weight = distinct_weighted(every_triple, weight)
    if num_repeated := len(every_triple) - len(triples):
        log.warning("%s: %s repeated triples left out before splitting", where, f"{num_repeated:,}")
    rows = split_rows(triples, *sizes, fractions, seed)
    num_wanted = sum(num_held_out(len(triples), fractions))
    num_found = len(rows["valid"]) + len(rows["test"])
    if num_found < num_wanted:
        log.warning(
            "%s: %s triples held out instead of %s, so that train has every entity and relation",
            *(where, f"{num_found:,}", f"{num_wanted:,}"),
        )
    splits = [torch.from_numpy(triples[rows[split]]) for split in SPLITS]
    weights = {} if weight is None else {split: torch.from_numpy(weight[rows[split]]) for split in SPLITS}
    return Graph(name, entities, relations, *splits, annotated=annotations, weights=weights)


def graph_of_splits(parts: Mapping[Split, TripleColumns], layout: Layout, where: Path | str, name: str) -> Graph:
    """Return the graph of triples that have splits of their own."""
    if "train" not in parts:
        raise GraphError(f"{where}: no train split")
    files = select_relations(list(parts.values()), layout.only, layout.exclude, where)
    entities, relations, encoded, annotations = _encode(files, where)
    splits = dict.fromkeys(SPLITS, np.empty((0, 3), np.int32)) | dict(zip(parts, encoded, strict=True))
    given = {split: file.weight for split, file in zip(parts, files, strict=True)}
    weights = {split: torch.from_numpy(weight) for split, weight in given.items() if weight is not None}
    tensors = (torch.from_numpy(splits[split]) for split in SPLITS)
    graph = Graph(name, entities, relations, *tensors, annotated=annotations, weights=weights)
    warn_of_unseen(graph)
    return graph


def warn_of_unseen(graph: Graph) -> None:
    """Log how many held-out triples have an entity or a relation that does not occur in train."""
    in_train_entity = torch.zeros(graph.num_entities, dtype=torch.bool)
    in_train_entity[graph.train[:, [0, 2]].flatten().long()] = True
    in_train_relation = torch.zeros(graph.num_relations, dtype=torch.bool)
    in_train_relation[graph.train[:, 1].long()] = True
    for split, triples in (("valid", graph.valid.long()), ("test", graph.test.long())):
        head, relation, tail = triples.T
        num_unseen = int((~(in_train_entity[head] & in_train_entity[tail] & in_train_relation[relation])).sum())
        if num_unseen:
            log.warning(
                "%s: %s of %s %s triples have an entity or relation that train never shows; kept, but scored by guess",
                *(graph.name, f"{num_unseen:,}", f"{len(triples):,}", split),
            )


def _encode(
    files: Sequence[TripleColumns], where: Path | str
) -> tuple[Vocabulary, Vocabulary, list[np.ndarray], Annotations]:
    """Return the vocabularies of all files, the id triples of each, and labels, types and counts of all.

    Ids follow the order of first appearance.
    """
    entities, entity_ids = _unify([column for file in files for column in (file.head, file.tail)], "entity")
    relations, relation_ids = _unify([file.relation for file in files], "relation")
    members = zip(entity_ids[::2], relation_ids, entity_ids[1::2], strict=True)
    annotations = found_in(files, entities, relations)
    _note_skipped(where, annotations.skipped)
    return entities, relations, [np.stack(ids, axis=1) for ids in members], annotations


def _note_skipped(where: Path | str, skipped: Mapping[str, int]) -> None:
    """Log how many triples were not read, and why."""
    if number := skipped.get(LITERALS):
        log.warning(
            "%s: %s triples with a literal skipped (only links between entities are learnt)", where, f"{number:,}"
        )
    unnamed = {kind: skipped[kind] for kind in (BLANK_NODES, LISTS) if skipped.get(kind)}
    if unnamed:
        numbers = " and ".join(f"{number:,} triples of {kind}" for kind, number in unnamed.items())
        log.warning("%s: %s skipped (--keep-blank keeps them)", where, numbers)


def _unify(columns: list[pa.ChunkedArray], item: str) -> tuple[Vocabulary, list[np.ndarray]]:
    """Return one vocabulary for several encoded columns, and the ids of each column in it."""
    chunks = [chunk for column in columns for chunk in column.chunks]
    if sum(chunk.dictionary.nbytes for chunk in chunks) > MAX_TEXT:
        chunks = [pa.DictionaryArray.from_arrays(c.indices, c.dictionary.cast(pa.large_string())) for c in chunks]
    merged = pa.chunked_array(chunks).unify_dictionaries()
    ids = np.concatenate([chunk.indices.to_numpy() for chunk in merged.chunks])
    names = merged.chunk(0).dictionary
    return Vocabulary(names, item), np.split(ids, np.cumsum([len(c) for c in columns])[:-1])
