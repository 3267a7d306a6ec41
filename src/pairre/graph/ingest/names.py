"""The vocabularies: every name of the files once, numbered in the order of a hash, in tables and in files.

DuckDB joins on numbers faster than on texts, so rows are looked up by `hash(name, salt)`. If two names have one hash,
which no one has seen, another salt is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pairre.graph.ingest.database import Database, MemoryLimitError
from pairre.graph.ingest.readers import FAULTS, quoted
from pairre.graph.ingest.sources import Source
from pairre.graph.stored.vocabulary import HASH_SQL, VocabularyWriter
from pairre.support.errors import GraphError
from pairre.support.reading import shown

_ENTITY, _RELATION, _SKIPPED = 0, 1, 2  # what a text is
_BLANK = r"[\s\x{0b}\x{1c}-\x{1f}\x{85}\p{Z}]*"  # what `str.strip` removes
_MAX_IDS = 2**31 - 1
_SALTS = range(8)
_SLICES, _MAX_SLICES = 0.25, 256  # slices for text of the size of DuckDB's memory, if a tenth of it is distinct


@dataclass(frozen=True)
class Names:
    """What is known when all names have been read."""

    num_entities: int
    num_relations: int
    num_rows: int  # triples in the files, repeated ones too
    skipped: Mapping[str, int]  # why rows are no triples → how many
    join: str  # the query that gives ids for names, with the columns head, relation, tail and split


def collect_names(database: Database, source: Source, folder: Path) -> Names:
    """Read all files once, write both vocabularies to a folder, and return how to look ids up."""
    _collect(database, source)
    counts = dict(database.run("SELECT kind, sum(num) FROM texts GROUP BY kind"))
    skipped = {str(why): int(num) for why, num in database.run(f"SELECT name, num FROM texts WHERE kind = {_SKIPPED}")}
    _check(database, source, skipped, int(counts.get(_RELATION, 0)))
    sizes = {}
    for prefix, kind in (("entities", _ENTITY), ("relations", _RELATION)):
        database.run(
            f"CREATE TABLE {prefix} AS SELECT (row_number() OVER (ORDER BY {HASH_SQL}(name), name) - 1)::BIGINT AS id, "
            f"name, num FROM texts WHERE kind = {kind}"
        )
        [(sizes[prefix],)] = database.run(f"SELECT count(*) FROM {prefix}")
        if sizes[prefix] > _MAX_IDS:
            raise GraphError(f"{source.where}: {sizes[prefix]:,} {prefix}, and a graph has at most {_MAX_IDS:,}")
        _write(database, folder, prefix, sizes[prefix])
    database.run("DROP TABLE texts")
    join = _join(database, source)
    return Names(sizes["entities"], sizes["relations"], int(counts[_RELATION]), skipped, join)


def stands_alone(database: Database, cells: Sequence[str]) -> bool:
    """Return whether the names of a triple occur in no other triple."""
    head, relation, tail = map(quoted, cells)
    query = f"SELECT num FROM entities WHERE name IN ({head}, {tail}) UNION ALL "
    found = database.run(f"{query} SELECT num FROM relations WHERE name = {relation}")
    return len(found) == 3 and all(num == 1 for (num,) in found)


def _collect(database: Database, source: Source) -> None:
    """Count every text of the files, by what it is.

    The distinct texts are collected in slices by their hash, each of which reads the files once, so that those of one
    slice fit into memory. How many slices are needed is guessed from the size of the files; too few are doubled.
    """
    slices = max(1, math.ceil(_SLICES * source.text_bytes / database.memory))
    while True:
        try:
            return _collect_slices(database, source, slices)
        except MemoryLimitError:
            if slices >= _MAX_SLICES:
                raise
            slices *= 2


def _collect_slices(database: Database, source: Source, slices: int) -> None:
    texts, kinds = "[head, tail, relation]", f"[{_ENTITY}, {_ENTITY}, {_RELATION}]"
    if source.skips:
        texts = f"CASE WHEN skipped IS NULL THEN {texts} ELSE [skipped] END"
        kinds = f"CASE WHEN skipped IS NULL THEN {kinds} ELSE [{_SKIPPED}] END"
    database.run("CREATE OR REPLACE TABLE texts (name VARCHAR, kind TINYINT, num BIGINT)")
    for part in range(slices):
        database.run(
            f"INSERT INTO texts SELECT name, kind, count(*) FROM (SELECT unnest({texts}) AS name, "
            f"unnest({kinds})::TINYINT AS kind FROM ({source.sql()})) "
            f"WHERE coalesce(hash(name), 0) % {slices} = {part} GROUP BY name, kind",
            step="names",
            share=1 / slices,
        )


def _check(database: Database, source: Source, skipped: Mapping[str, int], num_rows: int) -> None:
    """Refuse lines that are no triples, names of white space only, and files without a triple."""
    faulty = database.run(f"SELECT count(*) FROM texts WHERE name IS NULL OR regexp_full_match(name, '{_BLANK}')")
    if FAULTS in skipped or faulty != [(0,)]:
        raise source.find_fault("") or GraphError(f"{source.where}: a name is empty")
    if not num_rows:
        numbers = ", ".join(f"{number:,} {what}" for what, number in skipped.items())
        raise GraphError(f"{source.where}: no triples" + (f" ({numbers} skipped)" if numbers else ""))


def _write(database: Database, folder: Path, prefix: str, size: int) -> None:
    writer = VocabularyWriter(folder, prefix, size)
    for batch in database.batches(f"SELECT name, {HASH_SQL}(name) AS hash FROM {prefix} ORDER BY id"):
        if batch.num_rows:
            writer.append(batch["name"], batch["hash"].to_numpy().astype(np.uint64, copy=False))
    writer.close()


def _join(database: Database, source: Source) -> str:
    """Make the tables that rows are looked up in, and return the query that does it."""
    for salt in _SALTS:
        database.run(
            f"CREATE OR REPLACE TABLE entity_keys AS SELECT hash(name, {salt}) AS key, id::INTEGER AS id FROM entities"
        )
        [(num, num_distinct)] = database.run("SELECT count(*), count(DISTINCT key) FROM entity_keys")
        if num == num_distinct:
            break
    else:
        raise GraphError(f"{shown(source.where)}: no hash tells its names apart")
    triple = "WHERE skipped IS NULL" if source.skips else ""
    return (
        "SELECT one.id AS head, relations.id::INTEGER AS relation, other.id AS tail, split FROM "
        f"(SELECT hash(head, {salt}) AS head, relation, hash(tail, {salt}) AS tail, split "
        f"FROM ({source.sql()}) {triple}) AS rows LEFT JOIN entity_keys AS one ON rows.head = one.key "
        "LEFT JOIN relations ON rows.relation = relations.name LEFT JOIN entity_keys AS other ON rows.tail = other.key"
    )
