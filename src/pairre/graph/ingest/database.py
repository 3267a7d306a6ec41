"""DuckDB as ingest uses it: in a folder of its own, within a limit of memory, with faults as errors of one line."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from pairre.graph.ingest.readers import NAME_OF, unescaped
from pairre.graph.ingest.sources import Source
from pairre.support.errors import GraphError, MissingExtraError, RunError
from pairre.support.memory import readable_bytes
from pairre.support.reading import shortened

_BATCH = 1 << 18  # rows that are taken over at once
_POLL_SECONDS = 0.5  # between two looks at how far a query is


class MemoryLimitError(GraphError):
    """A query needs more memory than DuckDB may use."""


class Database:
    """A connection to a new database, whose files are removed with the folder that they are in."""

    def __init__(self, folder: Path, memory: int, source: Source, advance: Callable[[str, float], None]) -> None:
        """Open a database that uses up to `memory` bytes; `advance` is told how far the queries of a step are."""
        try:
            import duckdb
        except ImportError:
            raise MissingExtraError("pairre ingest", "big") from None
        self._duckdb, self._source, self.memory, self._advance = duckdb, source, memory, advance
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory // 1_000_000}MB",
            "temp_directory": str(folder / "spilled"),
            "preserve_insertion_order": False,
            # Joins are made as they are written: rows of the files look names up, never the other way round.
            "disabled_optimizers": "join_order,build_side_probe_side",
        }
        with self._watched():  # a full disk may show here already
            self._connection = duckdb.connect(folder / "work.duckdb", config=settings)
            self._connection.create_function("unescaped", unescaped, ["VARCHAR"], "VARCHAR")
            self._connection.execute(NAME_OF)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._connection.close()

    def run(self, sql: str, step: str | None = None, share: float = 1.0) -> list[tuple[Any, ...]]:
        """Execute a statement, which is some share of a step, and return its rows, of which there are few."""
        with self._watched(step, share):
            rows: list[tuple[Any, ...]] = self._connection.execute(sql).fetchall()
            return rows

    def batches(self, sql: str, step: str | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query, some at a time."""
        with self._watched(step):
            yield from self._connection.sql(sql).to_arrow_reader(_BATCH)

    @contextmanager
    def _watched(self, step: str | None = None, share: float = 1.0) -> Iterator[None]:
        """Report how far the query of the block is, and turn what DuckDB raises into errors of one line."""
        done = threading.Event()
        watcher = threading.Thread(target=self._report, args=(step, share, done), daemon=True)
        if step:
            watcher.start()
        try:
            yield
        except self._duckdb.Error as error:
            raise self._described(error) from error
        finally:
            done.set()
            if step:
                watcher.join()

    def _report(self, step: str, share: float, done: threading.Event) -> None:
        reached = 0.0
        while not done.wait(_POLL_SECONDS):
            now = max(reached, min(self._connection.query_progress() / 100, 1.0))  # −1 where it is not known
            self._advance(step, share * (now - reached))
            reached = now
        self._advance(step, share * (1.0 - reached))

    def _described(self, error: Exception) -> Exception:
        message = str(error)
        if isinstance(error, self._duckdb.OutOfMemoryException):
            asked = readable_bytes(self.memory)
            return MemoryLimitError(
                f"{self._source.where}: DuckDB needs more than {asked} of memory; give a higher --memory"
            )
        if "No space left" in message or "max_temp_directory_size" in message:
            return RunError(f"{self._source.where}: the disk is full; free some space and repeat the command")
        first = re.split(r"\n\s*\n|\n\s*Possible|\n\s*file =", message)[0]
        fault = self._source.find_fault(message)
        return fault or GraphError(f"{self._source.where}: {shortened(' '.join(first.split()), 300)}")
