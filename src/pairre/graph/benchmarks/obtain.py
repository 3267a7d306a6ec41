"""Downloads of benchmarks: fetched, normalised, verified against the published sizes and checksums, then kept.

A graph is normalised to `head<TAB>relation<TAB>tail` lines. It is written beside its final folder and moved there in
one step, so that a folder in the cache is always complete.
"""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from pairre.graph.benchmarks.download import fetch
from pairre.graph.benchmarks.entry import Benchmark, Source, Splits
from pairre.support.errors import DownloadError

_Row = tuple[bytes, bytes, bytes]  # head, relation, tail
_ENDINGS = (".tsv", ".tsv.gz")
_BROKEN_ARCHIVE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, gzip.BadGzipFile, EOFError)


def splits_in(folder: Path) -> list[str]:
    """Return the names of the splits that a folder holds as text."""
    return [split for split in Splits._fields if any((folder / f"{split}{end}").is_file() for end in _ENDINGS)]


def obtain(benchmark: Benchmark, kept: Path) -> None:
    """Fetch, normalise and verify the splits of a benchmark, and move them to the folder `kept` in one step."""
    if not benchmark.sources:
        raise DownloadError(
            f"{benchmark.name}: not downloadable, no public address is known; "
            f"point PAIRRE_DATA at a folder that holds {benchmark.name}/train.tsv.gz"
        )
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{benchmark.name}-", dir=kept.parent) as scratch:
            ready = _from_web(benchmark, Path(scratch))
            try:
                ready.replace(kept)
            except OSError:
                if "train" not in splits_in(kept):  # otherwise another process was faster
                    raise
    except OSError as error:
        advice = "set PAIRRE_CACHE to a folder with room that you may write to, or remove what is in the way"
        raise DownloadError(f"{kept}: cannot be written ({error.strerror or error}); {advice}") from error


def _from_web(benchmark: Benchmark, scratch: Path) -> Path:
    """Return a folder with the splits of the first source that delivers what was published."""
    failures: list[DownloadError] = []
    for number, source in enumerate(benchmark.sources):
        ready = scratch / f"source-{number}"
        ready.mkdir()
        try:
            _from_source(benchmark, source, ready, scratch / "fetched")
        except DownloadError as error:
            failures.append(error)
        else:
            return ready
    if len(failures) == 1:
        raise failures[0]
    raise DownloadError(f"{benchmark.name}: no source worked: {' | '.join(map(str, failures))}") from failures[0]


def _from_source(benchmark: Benchmark, source: Source, ready: Path, fetched: Path) -> None:
    writer = _SplitWriter(benchmark)
    if source.archive:
        fetch(source.archive, fetched)
    for split, part in source.parts._asdict().items():
        if part is None:
            continue
        if source.archive:
            where, opened = f"{source.archive}: {part}", _member(fetched, source.archive, part)
        else:
            where, opened = part, _plain(part, fetched)
        with opened as lines:
            writer.write(split, _rows(lines, source, where), ready, where)
    writer.verify_names(", ".join(source.urls))


@contextmanager
def _plain(url: str, fetched: Path) -> Generator[IO[bytes], None, None]:
    fetch(url, fetched)
    with fetched.open("rb") as lines:
        yield lines


@contextmanager
def _member(fetched: Path, url: str, path: str) -> Generator[IO[bytes], None, None]:
    """Open one member of an archive for reading; nothing is unpacked to a path that the archive chose."""
    try:
        if tarfile.is_tarfile(fetched):
            with tarfile.open(fetched) as tar:
                found = [member for member in tar if PurePosixPath(member.name) == PurePosixPath(path)]
                lines = tar.extractfile(found[-1]) if found and found[-1].isreg() else None
                if lines is None:
                    raise DownloadError(f"{url}: no file {path} in the archive; it has changed since it was published")
                with lines:
                    yield lines
        else:
            with zipfile.ZipFile(fetched) as archive:
                if path not in archive.namelist():
                    raise DownloadError(f"{url}: no file {path} in the archive; it has changed since it was published")
                with archive.open(path) as lines:
                    yield lines
    except _BROKEN_ARCHIVE as error:
        raise DownloadError(f"{url}: not a sound tar or zip archive ({error}); try again") from error


def _rows(lines: Iterable[bytes], source: Source, where: str) -> Iterator[_Row]:
    """Yield the triples of a published file in the order head, relation, tail."""
    delimiter = source.delimiter.encode()
    head, relation, tail = (source.columns.index(column) for column in "hrt")
    for number, line in enumerate(lines, start=1):
        text = line.rstrip(b"\r\n")
        if not text:
            continue
        columns = text.split(delimiter)
        if len(columns) != 3:
            raise DownloadError(f"{where}:{number}: {len(columns)} columns, expected 3; not the published file")
        yield columns[head], columns[relation], columns[tail]


@dataclass
class _SplitWriter:
    """Writes the splits of one benchmark and verifies counts and checksums in the same pass."""

    benchmark: Benchmark
    entities: set[bytes] = field(default_factory=set)
    relations: set[bytes] = field(default_factory=set)

    def write(self, split: str, rows: Iterable[_Row], folder: Path, where: str) -> None:
        """Write a split as reproducible gzip text; a wrong checksum or number of triples is a DownloadError."""
        digest, num_triples = hashlib.sha256(), 0
        with (
            (folder / f"{split}.tsv.gz").open("wb") as raw,
            gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as out,
        ):
            for row in rows:
                line = b"\t".join(row) + b"\n"
                out.write(line)
                digest.update(line)
                num_triples += 1
                self.entities.add(row[0])
                self.entities.add(row[2])
                self.relations.add(row[1])
        self._expect(f"{split} triples", self.benchmark.num_triples[split], num_triples, where)
        known: str | None = getattr(self.benchmark.sha256, split)
        if known and known != digest.hexdigest():
            self._refuse(f"{split} split with sha256 {known}", digest.hexdigest(), where)

    def verify_names(self, where: str) -> None:
        """Compare the numbers of distinct entities and relations of all splits with the published numbers."""
        self._expect("entities", self.benchmark.num_entities, len(self.entities), where)
        self._expect("relations", self.benchmark.num_relations, len(self.relations), where)

    def _expect(self, what: str, expected: int, found: int, where: str) -> None:
        if expected != found:
            self._refuse(f"{expected:,} {what}", f"{found:,}", where)

    def _refuse(self, expected: str, found: str, where: str) -> None:
        raise DownloadError(
            f"{self.benchmark.name}: {where}: expected {expected}, found {found}; "
            "not what was published, so nothing was kept: point PAIRRE_DATA at a folder with a sound copy"
        )
