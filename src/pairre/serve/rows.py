"""Prepared rows of candidates in one unnamed file that all scorer processes map, so that there is one copy of them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
import torch

from pairre.evaluation.ranking import SIDES
from pairre.graph import Side
from pairre.inference.prepared import PreparedRun
from pairre.models import LocalRows
from pairre.runs import Run
from pairre.support.errors import OutputError

Layout = dict[str, Any]  # side → where its rows are: byte, number and width of rows; or "entity" for the stored table


@torch.no_grad()
def write_rows(run: Run, file: BinaryIO) -> Layout | None:
    """Append the prepared rows of a run to a file and return where they are; None if they cannot be prepared."""
    if not PreparedRun.can_prepare(run):
        return None
    layout: Layout = {}
    for side in SIDES:
        if _is_stored(run, side):
            layout[side] = "entity"
        elif layout and _same_on_both_sides(run):
            layout[side] = layout[SIDES[0]]
        else:
            layout[side] = _append(run, side, file)
    return layout


def map_rows(run: Run, file: BinaryIO, layout: Mapping[str, Any]) -> PreparedRun:
    """Return a run with the prepared rows that `write_rows` wrote."""
    rows = {}
    for side in SIDES:
        where = layout[side]
        if where == "entity":
            stored = _stored_table(run)
            assert stored is not None
            rows[side] = stored.numpy()
        else:
            start, num_rows, width = where
            # Private, so that arrays may be written to as far as Numba is concerned; nobody does.
            mapped = mmap.mmap(file.fileno(), os.fstat(file.fileno()).st_size, access=mmap.ACCESS_COPY)
            flat = np.frombuffer(mapped, np.float32, num_rows * width, start)
            rows[side] = flat.reshape(num_rows, width)
    return PreparedRun(run, rows)


def _append(run: Run, side: Side, file: BinaryIO) -> list[int]:
    """Append the rows of a side to a file and return where they are."""
    start, num_rows, width = file.seek(0, os.SEEK_END), 0, 0
    try:
        for _, chunk in run.model.candidate_chunks(side, None):
            file.write(np.ascontiguousarray(chunk.numpy()).data)
            num_rows, width = num_rows + len(chunk), chunk.shape[1]
        file.flush()
    except OSError as error:
        raise OutputError(f"the folder for temporary files has no room for prepared rows: {error.strerror}") from error
    return [start, num_rows, width]


def _stored_table(run: Run) -> torch.Tensor | None:
    """Return the table of entities, mapped from its file, or None if it is in several files."""
    source = run.model.stored["entity"]
    return source.table.detach() if isinstance(source, LocalRows) else None


def _is_stored(run: Run, side: Side) -> bool:
    """Return whether the prepared rows of a side are the stored ones."""
    stored = _stored_table(run)
    if stored is None or stored.dtype != torch.float32:
        return False
    return all(torch.equal(rows, stored[start : start + len(rows)]) for start, rows in _chunks(run, side))


def _same_on_both_sides(run: Run) -> bool:
    both = zip(_chunks(run, SIDES[0]), _chunks(run, SIDES[1]), strict=True)
    return all(torch.equal(one, other) for (_, one), (_, other) in both)


def _chunks(run: Run, side: Side) -> Any:
    return run.model.candidate_chunks(side, None)
