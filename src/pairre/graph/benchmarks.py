"""A benchmark's name → a folder of its splits: where copies are looked for, and what a download must prove to be kept.

Looked up in `$PAIRRE_DATA/<name>` (trusted as it is), then in the cache, then fetched. A fetched graph is normalised to
`head<TAB>relation<TAB>tail` lines, held against the published checksums and counts, and moved into the cache whole.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from pairre.graph.benchmark_table import BENCHMARKS, Benchmark, Source, Splits
from pairre.graph.download import fetch
from pairre.support.errors import DownloadError, GraphError, suggest
from pairre.support.files import cache_folder

__all__ = ["BENCHMARKS", "Benchmark", "Source", "Splits", "find", "locate", "names"]

Row = tuple[bytes, bytes, bytes]  # head, relation, tail

_SUFFIXES = (".tsv", ".tsv.gz")
_BROKEN_ARCHIVE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, gzip.BadGzipFile, EOFError)


def names() -> tuple[str, ...]:
    """Return the names of all benchmarks, in the order of the table."""
    return tuple(benchmark.name for benchmark in BENCHMARKS)


def find(name: str) -> Benchmark:
    """Return the benchmark of that name, in any case; an unknown one is answered with the nearest and all names."""
    for benchmark in BENCHMARKS:
        if benchmark.name == name.lower():
            return benchmark
    known = ("atlas", *names())
    raise GraphError(f"{name}: no graph of that name{suggest(name.lower(), known)}; names: {', '.join(known)}")


def locate(name: str, *, cache: Path | None = None) -> Path:
    """Return a folder with the splits of a benchmark as `train.tsv[.gz]` and so on, fetching it if there is no copy.

    A folder in `$PAIRRE_DATA` without a train split does not count; if the graph cannot be fetched either, the error
    mentions it, or that there is no such folder. `cache` replaces the cache folder.
    """
    benchmark = find(name)
    passed_over = ""
    if data := os.environ.get("PAIRRE_DATA"):
        local = Path(data) / benchmark.name
        present = _present(local)
        if "train" in present:
            return local
        if present:
            passed_over = f" ({local} has {' and '.join(present)}, but no train split)"
        elif not Path(data).is_dir():
            passed_over = f" (PAIRRE_DATA is {data}, which is no folder)"
    kept = (cache or cache_folder()) / "graphs" / benchmark.name
    if "train" in _present(kept):
        return kept
    try:
        _obtain(benchmark, kept)
    except DownloadError as error:
        if passed_over:
            raise DownloadError(f"{error}{passed_over}") from error
        raise
    return kept


def _present(folder: Path) -> list[str]:
    return [split for split in Splits._fields if any((folder / f"{split}{end}").is_file() for end in _SUFFIXES)]


def _obtain(benchmark: Benchmark, kept: Path) -> None:
    """Fetch, normalise and verify beside `kept`, then move the folder there in one step."""
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
                if "train" not in _present(kept):  # unless another process was quicker
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
    tally = _Tally(benchmark)
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
            tally.write(split, _rows(lines, source, where), ready, where)
    tally.verify_names(", ".join(source.urls))


@contextmanager
def _plain(url: str, fetched: Path) -> Generator[IO[bytes], None, None]:
    fetch(url, fetched)
    with fetched.open("rb") as lines:
        yield lines


@contextmanager
def _member(fetched: Path, url: str, path: str) -> Generator[IO[bytes], None, None]:
    """Open one named member of an archive for reading; nothing is ever unpacked to a path the archive chose."""
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


def _rows(lines: Iterable[bytes], source: Source, where: str) -> Iterator[Row]:
    """Yield the triples of a file upstream, whatever its column order, delimiter and line ends."""
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
class _Tally:
    """Writes the splits of one benchmark and counts along, so that a graph is read once and held to its figures."""

    benchmark: Benchmark
    entities: set[bytes] = field(default_factory=set)
    relations: set[bytes] = field(default_factory=set)

    def write(self, split: str, rows: Iterable[Row], folder: Path, where: str) -> None:
        """Write `split` as reproducible gzip'd text; a wrong checksum or number of triples is a DownloadError."""
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
        """Hold the entities and relations seen in all splits together against the published numbers."""
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
