"""The description of a public benchmark: its sources, its published sizes and its checksums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Splits(NamedTuple):
    """One string for each split; None if the split does not exist or nothing is known about it."""

    train: str | None = None
    valid: str | None = None
    test: str | None = None


_NO_CHECKSUMS = Splits()


@dataclass(frozen=True)
class Source:
    """A place that holds a graph: `parts` are URLs, or paths of members of `archive` (a tar or zip file)."""

    parts: Splits
    archive: str | None = None
    columns: str = "hrt"  # the order of head, relation and tail in a line
    delimiter: str = "\t"

    @classmethod
    def of_files(cls, folder: str, pattern: str = "{}.txt") -> Source:
        """Return a source with one file for each split; `pattern` has the split's name for `{}`."""
        return cls(Splits(*(f"{folder}/{pattern.format(split)}" for split in Splits._fields)))

    @classmethod
    def of_archive(cls, url: str, pattern: str = "{}.txt") -> Source:
        """Return a source with one archive that has a member for each split."""
        return cls(Splits(*(pattern.format(split) for split in Splits._fields)), archive=url)

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs that are fetched."""
        return (self.archive,) if self.archive else tuple(part for part in self.parts if part)


@dataclass(frozen=True)
class Benchmark:
    """A published graph. Sizes count lines, repetitions included; `num_valid` is 0 if no valid split was released."""

    name: str
    title: str
    citation: str
    licence: str
    num_entities: int
    num_relations: int
    num_train: int
    num_valid: int
    num_test: int
    sources: tuple[Source, ...] = ()  # tried in order
    sha256: Splits = _NO_CHECKSUMS  # of the normalised text: `head<TAB>relation<TAB>tail` with line feeds
    from_ogb: bool = False  # fetched and read by the `ogb` package, which knows its own URLs

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of all sources."""
        return tuple(url for source in self.sources for url in source.urls)

    @property
    def verifiable(self) -> bool:
        """Whether a checksum of every released split is known, so that a download can be verified."""
        return all(getattr(self.sha256, split) for split in self.num_triples)

    @property
    def num_triples(self) -> dict[str, int]:
        """The published number of lines of each split that was released."""
        counts = {"train": self.num_train, "valid": self.num_valid, "test": self.num_test}
        return {split: count for split, count in counts.items() if count}
