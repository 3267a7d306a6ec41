"""Downloads of benchmarks: fetched, normalised, verified against the published sizes and checksums, then kept.

A graph is normalised to `head<TAB>relation<TAB>tail` lines. It is written beside its final folder and moved there in
one step, so that a folder in the cache is always complete.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from pairre.graph.benchmarks.download import fetch
from pairre.graph.benchmarks.entry import Benchmark, Source, Splits
from pairre.support.errors import DownloadError

_Row = tuple[bytes, bytes, bytes]  # head, relation, tail
_ENDINGS = (".tsv", ".tsv.gz")
_MAX_LINE = 1 << 20
_MAX_UNPACKED = 4 << 30  # bytes of an archive
_BROKEN_ARCHIVE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, gzip.BadGzipFile, lzma.LZMAError, EOFError)


def splits_in(folder: Path) -> list[str]:
    """Return the names of the splits that a folder holds as text."""
    return [split for split in Splits._fields if any((folder / f"{split}{end}").is_file() for end in _ENDINGS)]


def refuse_unverifiable(benchmark: Benchmark) -> None:
    """Raise a DownloadError if no checksums are known that a download could be verified with."""
    if not benchmark.verifiable:
        raise DownloadError(
            f"{benchmark.name}: no checksum is known for this graph, so a download is held against the published sizes "
            f"only; if that will do, download it once with pairre stats {benchmark.name} --unverified"
        )


def obtain(benchmark: Benchmark, kept: Path, *, unverified: bool = False) -> None:
    """Fetch, normalise and verify the splits of a benchmark, and move them to the folder `kept` in one step.

    A benchmark of which no checksums are known is downloaded only with `unverified`.
    """
    if not benchmark.sources:
        raise DownloadError(
            f"{benchmark.name}: not downloadable, no public address is known; "
            f"point PAIRRE_DATA at a folder that holds {benchmark.name}/train.tsv.gz"
        )
    if not unverified:
        refuse_unverifiable(benchmark)
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
            writer.write(split, _rows(_lines(lines, where), source, where), ready, where)
    writer.verify_names(", ".join(source.urls))


@contextmanager
def _plain(url: str, fetched: Path) -> Generator[IO[bytes], None, None]:
    fetch(url, fetched)
    with fetched.open("rb") as lines:
        yield lines


@contextmanager
def _member(fetched: Path, url: str, path: str) -> Generator[IO[bytes], None, None]:
    """Open one member of an archive for reading; nothing is unpacked to a path that the archive chose."""
    with ExitStack() as stack:
        try:
            lines = _open_member(fetched, url, path, stack)
        except (*_BROKEN_ARCHIVE, OSError, ValueError, RuntimeError, OverflowError, MemoryError) as error:
            raise _broken(url, error) from error
        if lines is None:
            raise DownloadError(f"{url}: no file {path} in the archive; it has changed since it was published")
        try:
            yield lines
        except _BROKEN_ARCHIVE as error:  # not those of the disk that the lines are written to meanwhile
            raise _broken(url, error) from error


def _open_member(fetched: Path, url: str, path: str, stack: ExitStack) -> IO[bytes] | None:
    """Return the opened member, or None if there is none; the stack closes it."""
    if tarfile.is_tarfile(fetched):
        tar = stack.enter_context(tarfile.open(fetched))  # noqa: SIM115
        found = [m for m in _members(tar, url) if PurePosixPath(m.name) == PurePosixPath(path)]
        lines = tar.extractfile(found[-1]) if found and found[-1].isreg() else None
        return stack.enter_context(lines) if lines else None
    archive = stack.enter_context(zipfile.ZipFile(fetched))
    return stack.enter_context(archive.open(path)) if path in archive.namelist() else None


def _broken(url: str, error: Exception) -> DownloadError:
    return DownloadError(
        f"{url}: not a sound tar or zip archive ({' '.join(str(error).split()) or type(error).__name__}); try again"
    )


def _members(tar: tarfile.TarFile, url: str) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive; looking for the next one unpacks what lies between, so that is bounded."""
    for member in tar:
        if member.offset_data + member.size > _MAX_UNPACKED:
            size = f"more than {_MAX_UNPACKED >> 30} GiB when it is unpacked"
            raise DownloadError(f"{url}: {size}; not what was published")
        yield member


def _lines(stream: IO[bytes], where: str) -> Iterator[bytes]:
    """Yield the lines of a stream; one without end is a DownloadError."""
    while line := stream.readline(_MAX_LINE):
        if len(line) == _MAX_LINE:
            raise DownloadError(f"{where}: a line of more than {_MAX_LINE >> 20} MiB; not the published file")
        yield line


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
        digest, num_triples, expected = hashlib.sha256(), 0, self.benchmark.num_triples[split]
        with (
            (folder / f"{split}.tsv.gz").open("wb") as raw,
            gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as out,
        ):
            for row in rows:
                line = b"\t".join(row) + b"\n"
                out.write(line)
                digest.update(line)
                num_triples += 1
                if num_triples > expected:  # at once, because it may have no end
                    self._refuse(f"{expected:,} {split} triples", "more", where)
                self.entities.add(row[0])
                self.entities.add(row[2])
                self.relations.add(row[1])
        self._expect(f"{split} triples", expected, num_triples, where)
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
