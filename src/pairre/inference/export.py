"""Write the vectors of a run for other programs: Parquet, NumPy, word2vec text, TensorBoard's projector.

Vectors are written in chunks, so that memory is bounded, and files appear whole or not at all. Parquet and NumPy hold
names exactly. Text formats cannot: each writer below says what it does to a name that has spaces or line breaks.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import torch

from pairre.graph import Vocabulary
from pairre.runs import Run
from pairre.runs.vectors import Table, vector_chunks, vector_width
from pairre.support.errors import PairREError, suggest
from pairre.support.files import check_file, written_whole
from pairre.support.text import visible

FractionCallback = Callable[[float], None]  # receives the part of the work done since the last call
Chunks = Iterator[np.ndarray]  # [n, D] float32
FORMATS = {  # endings by format
    "parquet": (".parquet", ".pq"),
    "npz": (".npz",),
    "npy": (".npy",),
    "word2vec": (".txt", ".vec", ".w2v"),
    "projector": (".tsv",),
}
_BESIDE = {"npy": ".names.txt", "projector": ".metadata.tsv"}  # the ending of a second file, with the names
_NAMES_AT_ONCE = 1 << 16


def export(
    run: Run,
    out: str | Path,
    *,
    table: Table = "entities",
    format: str | None = None,
    progress: FractionCallback | None = None,
) -> list[Path]:
    """Write the vectors of all entities, or relations, to a file, and return the files that were written.

    The format follows from the ending of `out`, or is one of `FORMATS`. Entities have the vectors that the score uses
    (for PairRE of length 1), relations those that are stored. `progress` is called with the number of vectors written
    since its last call.
    """
    if table not in ("entities", "relations"):
        raise PairREError(f"table {table!r}: unknown; one of entities, relations")
    files, write = files_of(out, format), _WRITERS[_format(Path(out), format)]
    check_file(files[0])
    names: Vocabulary = getattr(run.graph, table)

    def chunks() -> Chunks:
        for _, rows in vector_chunks(run.model, table):
            if not bool(torch.isfinite(rows).all()):
                raise PairREError(f"{run.path or run.graph.name}: a vector is not finite; the weights have diverged")
            yield np.ascontiguousarray(rows.cpu().numpy())
            if progress:
                progress(len(rows))

    width = vector_width(run.model, table)
    if run.writes:
        write(files, names, width, chunks())
    else:  # a process that shares the rows takes part in reading them
        deque(chunks(), 0)
    return files


def files_of(out: str | Path, format: str | None = None) -> list[Path]:
    """Return the files that `export` writes: vectors, and where the format has no names, a second one beside it."""
    out = Path(out)
    beside = _BESIDE.get(_format(out, format))
    return [out, out.with_suffix(beside)] if beside else [out]


def _format(out: Path, format: str | None) -> str:
    name = format or next((name for name, endings in FORMATS.items() if out.suffix.lower() in endings), None)
    if name not in FORMATS:
        known = ", ".join(f"{name} ({', '.join(endings)})" for name, endings in FORMATS.items())
        what = f"format {format!r}: unknown{suggest(format, FORMATS)}" if format else f"{out}: no format ends so"
        raise PairREError(f"{what}; formats and their endings: {known}")
    return name


def _write_parquet(files: list[Path], names: Vocabulary, width: int, chunks: Chunks) -> None:
    """Write the columns `name` and `vector`, a list of float32 of fixed length."""
    vectors = pa.list_(pa.float32(), width)
    schema = pa.schema([("name", names.names.type), ("vector", vectors)])
    start = 0
    with written_whole(files[0]) as part, pq.ParquetWriter(part, schema, compression="zstd") as writer:
        for rows in chunks:
            column = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), type=vectors)
            writer.write_table(pa.table([names.names.slice(start, len(rows)), column], schema=schema))
            start += len(rows)


def _write_npz(files: list[Path], names: Vocabulary, width: int, chunks: Chunks) -> None:
    """Write the arrays `names` and `vectors`, which `numpy.load` reads without pickle."""
    with written_whole(files[0]) as part, zipfile.ZipFile(part, "w") as archive:
        kind = zipfile.ZipInfo("names.npy")
        kind.compress_type = zipfile.ZIP_DEFLATED  # numpy pads names to the longest
        with archive.open(kind, "w", force_zip64=True) as file:
            longest = max(1, pc.max(pc.utf8_length(names.names)).as_py() or 1)
            _write_header(file, (len(names),), f"<U{longest}")
            for start in range(0, len(names), _NAMES_AT_ONCE):
                some = names.names.slice(start, _NAMES_AT_ONCE).to_pylist()
                file.write(np.array(some, f"<U{longest}").tobytes())
        with archive.open("vectors.npy", "w", force_zip64=True) as file:
            _write_array(file, (len(names), width), chunks)


def _write_npy(files: list[Path], names: Vocabulary, width: int, chunks: Chunks) -> None:
    r"""Write one array, which can be mapped into memory, and beside it the names, a line each; `\n` for a break."""
    _write_pair(files, names, lambda file: _write_array(file, (len(names), width), chunks))


def _write_word2vec(files: list[Path], names: Vocabulary, width: int, chunks: Chunks) -> None:
    """Write the text that word2vec, fastText and gensim read; white space in names becomes `_`."""
    words = [re.sub(r"[\s\x00-\x1f\x7f]", "_", name) or "_" for name in names.names.to_pylist()]
    if len(set(words)) < len(words):
        first: dict[str, int] = {}
        twice = next(i for i, word in enumerate(words) if first.setdefault(word, i) != i)
        one, other = visible(names[first[words[twice]]]), visible(names[twice])
        raise PairREError(
            f"{files[0]}: word2vec has no spaces, so {one!r} and {other!r} would be one word; write .parquet"
        )
    start = 0
    with written_whole(files[0]) as part, part.open("wb") as file:
        file.write(f"{len(words)} {width}\n".encode())
        for rows in chunks:
            for word, numbers in zip(words[start : start + len(rows)], _text_rows(rows, " "), strict=True):
                file.write(b"%s %s\n" % (word.encode(), numbers))
            start += len(rows)


def _write_projector(files: list[Path], names: Vocabulary, width: int, chunks: Chunks) -> None:  # noqa: ARG001
    r"""Write vectors, and beside them the names as metadata; tabs and line breaks in names become `\t` and `\n`."""

    def fill(file: IO[bytes]) -> None:
        for rows in chunks:
            file.writelines(numbers + b"\n" for numbers in _text_rows(rows, "\t"))

    _write_pair(files, names, fill)


_WRITERS: dict[str, Callable[[list[Path], Vocabulary, int, Chunks], None]] = {
    "parquet": _write_parquet,
    "npz": _write_npz,
    "npy": _write_npy,
    "word2vec": _write_word2vec,
    "projector": _write_projector,
}


def _write_pair(files: list[Path], names: Vocabulary, fill: Callable[[IO[bytes]], None]) -> None:
    """Write a file of vectors and one of names; neither appears before both are complete."""
    with ExitStack() as stack:
        parts = [stack.enter_context(written_whole(path)) for path in files]
        with parts[1].open("w", encoding="utf-8", newline="\n") as file:
            for start in range(0, len(names), _NAMES_AT_ONCE):
                some = names.names.slice(start, _NAMES_AT_ONCE).to_pylist()
                file.writelines(visible(name) + "\n" for name in some)
        with parts[0].open("wb") as vectors:
            fill(vectors)


def _write_array(file: IO[bytes], shape: tuple[int, int], chunks: Chunks) -> None:
    """Write a float32 array in NumPy's own format."""
    _write_header(file, shape, "<f4")
    for rows in chunks:
        file.write(rows.astype("<f4", copy=False).tobytes())


def _write_header(file: IO[bytes], shape: tuple[int, ...], dtype: str) -> None:
    np.lib.format.write_array_header_2_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})


def _text_rows(rows: np.ndarray, delimiter: str) -> list[bytes]:
    """Return the numbers of each row as text, the shortest that read back to the same float32."""
    columns = {str(i): column for i, column in enumerate(np.ascontiguousarray(rows.T))}
    options = pa.csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style="none")
    buffer = io.BytesIO()
    pa.csv.write_csv(pa.table(columns), buffer, options)
    return buffer.getvalue().splitlines()
