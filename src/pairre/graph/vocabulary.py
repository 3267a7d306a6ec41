"""The names of entities or relations: the name of id i is row i of an Arrow array, stored as Parquet."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pairre.support.errors import NameNotFoundError
from pairre.support.files import written_whole

_MAX_COMPARED = 10_000  # names that difflib compares in about a second


class Vocabulary:
    """Dense ids for names: `vocabulary[3]` is a name, `vocabulary.id("Paris")` its id."""

    def __init__(self, names: Iterable[str] | pa.Array, item: str) -> None:
        self.names: pa.Array = names if isinstance(names, pa.Array) else pa.array(list(names), pa.string())
        self.item = item  # what is named: "entity" or "relation"

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> str:
        return str(self.names[index].as_py())

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} {self.item} names)"

    def name_list(self, ids: Sequence[int]) -> list[str]:
        """Return the names of many ids."""
        return [str(name) for name in self.names.take(pa.array(ids, pa.int64())).to_pylist()]

    def id(self, name: str) -> int:
        """Return the id of a name; a NameNotFoundError lists the nearest names if there is none."""
        found = int(pc.index(self.names, pa.scalar(name, self.names.type)).as_py())
        if found < 0:
            near = self.nearest(name)
            hint = f"; nearest: {', '.join(repr(n) for n in near)}" if near else ""
            raise NameNotFoundError(f"no {self.item} named {name!r}{hint}")
        return found

    def nearest(self, name: str, count: int = 5) -> list[str]:
        """Return up to `count` names that are similar to a mistyped `name`, the most similar first."""
        lower = pc.utf8_lower(self.names)
        wanted = name.lower()
        containing = self.names.filter(pc.match_substring(lower, wanted)).slice(0, _MAX_COMPARED).to_pylist()
        found = sorted(containing, key=len)[:count]
        compared = self.names if len(self) <= _MAX_COMPARED else self._preselect(lower, wanted)
        by_lower = {str(n).lower(): str(n) for n in compared.to_pylist()}
        typos = [by_lower[n] for n in difflib.get_close_matches(wanted, list(by_lower), n=count, cutoff=0.6)]
        return list(dict.fromkeys(typos + found))[:count]

    def _preselect(self, lower: pa.Array, wanted: str) -> pa.Array:
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
        return self.names.filter(pc.and_(close, half)).slice(0, _MAX_COMPARED)

    def save(self, path: Path) -> None:
        """Write the names as a Parquet file with one column, `name`."""
        with written_whole(path) as part:
            pq.write_table(pa.table({"name": self.names}), part, compression="zstd")

    @classmethod
    def load(cls, path: Path, item: str) -> Vocabulary:
        """Return the vocabulary that `save` wrote."""
        return cls(pq.read_table(path)["name"].combine_chunks(), item)
