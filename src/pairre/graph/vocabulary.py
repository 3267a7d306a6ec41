"""The names of entities or relations: the name of id i is row i of an Arrow array, stored as Parquet."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pairre.graph.name_index import NameIndex
from pairre.support.errors import GraphError, NameNotFoundError
from pairre.support.files import written_whole
from pairre.support.reading import file_fault, shortened
from pairre.support.table_files import PARQUET_FAULTS

_MAX_COMPARED = 10_000  # names that difflib compares in about a second
_MAX_SCANNED, _MAX_SCANS = 100_000, 8  # more names, looked at more often, are worth an index
MAX_TEXT = 2**31 - 1  # bytes of names that an Arrow array of the type `string` can hold


class Vocabulary:
    """Dense ids for names: `vocabulary[3]` is a name, `vocabulary.id("Paris")` its id."""

    def __init__(self, names: Iterable[str] | pa.Array, item: str) -> None:
        self.names: pa.Array = names if isinstance(names, pa.Array) else pa.array(list(names), pa.string())
        self.item = item  # what is named: "entity" or "relation"
        self._index: NameIndex | None = None
        self._num_scans = 0

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> str:
        return str(self.names[index].as_py())

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} {self.item} names)"

    def name_list(self, ids: Sequence[int]) -> list[str]:
        """Return the names of many ids."""
        # Not `pa.array`, nor `pa.scalar` below: they load pandas where it is installed, which takes longer than this.
        rows = pa.Array.from_buffers(pa.int64(), len(ids), [None, pa.py_buffer(np.asarray(ids, np.int64))])
        return [str(name) for name in self.names.take(rows).to_pylist()]

    def find(self, name: str) -> int | None:
        """Return the id of a name, or None."""
        if self._index is None and len(self.names) > _MAX_SCANNED:
            self._num_scans += 1
            if self._num_scans > _MAX_SCANS:
                self._index = NameIndex(self.names)
        try:
            if self._index:
                return self._index.find(name)
            text = name.encode()
        except UnicodeEncodeError:  # an argument that is not UTF-8, as no name is
            raise NameNotFoundError(f"no {self.item} named {name!r}; names are UTF-8") from None
        wanted = pa.Array.from_buffers(pa.binary(len(text)), 1, [None, pa.py_buffer(text)]).cast(self.names.type)
        found = int(pc.index(self.names, wanted[0]).as_py())
        return None if found < 0 else found

    def find_all(self, names: pa.Array) -> pa.Array:
        """Return the ids of many names at once, null where there is none."""
        return pc.index_in(names.cast(self.names.type), value_set=self.names)

    def id(self, name: str) -> int:
        """Return the id of a name; a NameNotFoundError lists the nearest names if there is none."""
        if (found := self.find(name)) is None:
            near = self.nearest(name)
            hint = f"; nearest: {', '.join(repr(n) for n in near)}" if near else ""
            raise NameNotFoundError(f"no {self.item} named {name!r}{hint}")
        return found

    def nearest(self, name: str, count: int = 5) -> list[str]:
        """Return up to `count` names that are similar to a mistyped `name`, the most similar first."""
        return nearest(self.names, name, count)

    def save(self, path: Path) -> None:
        """Write the names as a Parquet file with one column, `name`."""
        with written_whole(path) as part:
            pq.write_table(pa.table({"name": self.names}), part, compression="zstd")

    @classmethod
    def load(cls, path: Path, item: str) -> Vocabulary:
        """Return the vocabulary that `save` wrote; a file that is damaged is a GraphError."""
        names = read_columns(path, "name")[0]
        if not (pa.types.is_string(names.type) or pa.types.is_large_string(names.type)):
            raise GraphError(f"{path}: damaged: the names are {names.type}, not text")
        return cls(in_one_array(names), item)


def in_one_array(texts: pa.ChunkedArray) -> pa.Array:
    """Return texts without chunks; those of more than 2 GiB as the type `large_string`, which has room for them."""
    return (texts.cast(pa.large_string()) if texts.nbytes > MAX_TEXT else texts).combine_chunks()


def nearest(names: pa.Array, name: str, count: int = 5) -> list[str]:
    """Return up to `count` of some names that are similar to a mistyped `name`, the most similar first."""
    lower = pc.utf8_lower(names)
    wanted = name.lower()
    containing = names.filter(pc.match_substring(lower, wanted)).slice(0, _MAX_COMPARED).to_pylist()
    found = sorted(containing, key=len)[:count]
    compared = names if len(names) <= _MAX_COMPARED else _preselect(names, lower, wanted)
    by_lower = {str(n).lower(): str(n) for n in compared.to_pylist()}
    typos = [by_lower[n] for n in difflib.get_close_matches(wanted, list(by_lower), n=count, cutoff=0.6)]
    return list(dict.fromkeys(typos + found))[:count]


def _preselect(names: pa.Array, lower: pa.Array, wanted: str) -> pa.Array:
    """Return the names of about the same length that share the first or the second half of a word.

    A typing error usually leaves one half of a word intact. The word of an IRI begins after its last '/' or '#'.
    difflib compares names one by one, which would take minutes for millions of names.
    """
    cut = max(wanted.rfind("/"), wanted.rfind("#")) + 1
    middle = cut + (len(wanted) - cut + 1) // 2
    half = pc.or_(pc.starts_with(lower, wanted[:middle]), pc.ends_with(lower, wanted[middle:]))
    length = pc.utf8_length(lower)
    slack = max(2, len(wanted) // 4)
    close = pc.and_(pc.greater_equal(length, len(wanted) - slack), pc.less_equal(length, len(wanted) + slack))
    return names.filter(pc.and_(close, half)).slice(0, _MAX_COMPARED)


def read_columns(path: Path, *titles: str) -> list[pa.ChunkedArray]:
    """Return columns of a Parquet file in a run folder; one that is damaged is a GraphError."""
    if fault := file_fault(path):
        raise GraphError(f"{path}: {fault}")
    try:
        table = pq.ParquetFile(path).read()
        table.validate(full=True)
    except PARQUET_FAULTS as error:
        raise GraphError(f"{path}: damaged: {shortened(' '.join(str(error).split()), 300)}") from error
    columns = []
    for title in titles:
        if table.column_names.count(title) != 1 or table[title].null_count:
            raise GraphError(f"{path}: damaged: no column '{title}', or with nulls in it")
        columns.append(table[title])
    return columns
