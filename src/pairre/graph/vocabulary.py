"""Names of entities or relations: id i is row i, held as one Arrow array and kept in Parquet."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pairre.support.errors import NameNotFoundError
from pairre.support.files import written_whole

_POOL = 10_000  # names that difflib compares in a second or so


class Vocabulary:
    """Dense ids for names: `vocabulary[3]` is a name, `vocabulary.id("Paris")` its id."""

    def __init__(self, names: Iterable[str] | pa.Array, kind: str) -> None:
        self.names: pa.Array = names if isinstance(names, pa.Array) else pa.array(list(names), pa.string())
        self.kind = kind  # "entity" or "relation": only for messages

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> str:
        return str(self.names[index].as_py())

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} {self.kind} names)"

    def name_list(self, ids: Sequence[int]) -> list[str]:
        """Names of many ids at once."""
        return [str(name) for name in self.names.take(pa.array(ids, pa.int64())).to_pylist()]

    def id(self, name: str) -> int:
        """The id of a name; a name that does not exist raises an error that lists the nearest ones."""
        found = int(pc.index(self.names, pa.scalar(name, self.names.type)).as_py())
        if found < 0:
            near = self.nearest(name)
            hint = f"; nearest: {', '.join(repr(n) for n in near)}" if near else ""
            raise NameNotFoundError(f"no {self.kind} named {name!r}{hint}")
        return found

    def nearest(self, name: str, count: int = 5) -> list[str]:
        """Names that a person who typed `name` may have meant, best first."""
        lower = pc.utf8_lower(self.names)
        wanted = name.lower()
        holding = self.names.filter(pc.match_substring(lower, wanted)).slice(0, 10_000).to_pylist()
        found = sorted(holding, key=len)[:count]
        pool = self.names if len(self) <= _POOL else self._plausible(lower, wanted)
        by_lower = {str(n).lower(): str(n) for n in pool.to_pylist()}
        typos = [by_lower[n] for n in difflib.get_close_matches(wanted, list(by_lower), n=count, cutoff=0.6)]
        return list(dict.fromkeys(typos + found))[:count]

    def _plausible(self, lower: pa.Array, wanted: str) -> pa.Array:
        """Names that could be a near miss: difflib compares one by one, so a large vocabulary is narrowed first.

        A slip of the finger leaves one half of a word as it is; an IRI's word comes after its last '/' or '#'.
        """
        cut = max(wanted.rfind("/"), wanted.rfind("#")) + 1
        middle = cut + (len(wanted) - cut + 1) // 2
        half = pc.or_(pc.starts_with(lower, wanted[:middle]), pc.ends_with(lower, wanted[middle:]))
        length = pc.utf8_length(lower)
        slack = max(2, len(wanted) // 4)
        close = pc.and_(pc.greater_equal(length, len(wanted) - slack), pc.less_equal(length, len(wanted) + slack))
        return self.names.filter(pc.and_(close, half)).slice(0, _POOL)

    def save(self, path: Path) -> None:
        """Write the names as a Parquet file with one column, `name`."""
        with written_whole(path) as part:
            pq.write_table(pa.table({"name": self.names}), part, compression="zstd")

    @classmethod
    def load(cls, path: Path, kind: str) -> Vocabulary:
        """Read a file written by `save`."""
        return cls(pq.read_table(path)["name"].combine_chunks(), kind)
