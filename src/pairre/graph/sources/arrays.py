"""Arrays: NumPy arrays and PyTorch tensors [N, 3] of names or whole numbers; more columns if three are chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from pairre.graph.formats import Layout, TripleColumns
from pairre.graph.formats.arrow import encode_columns
from pairre.graph.formats.columns import find_columns
from pairre.graph.formats.registry import one_line
from pairre.graph.sources.registry import register
from pairre.support.errors import GraphError


@register(lambda source: isinstance(source, np.ndarray | Tensor), help="an array [N, 3] of names or whole numbers")
def read_array(source: Any, layout: Layout) -> TripleColumns:
    """Return the triples of an array, whose rows are head, relation and tail."""
    array = source.detach().cpu().numpy() if isinstance(source, Tensor) else source
    if array.ndim != 2:
        raise GraphError(f"array: two dimensions [N, 3] expected, not {list(array.shape)}")
    positions = find_columns("array", layout, None, array.shape[1])
    try:
        columns = [pa.chunked_array([pa.array(array[:, position])]) for position in positions]
        return encode_columns("array", [str(position + 1) for position in positions], columns)
    except (pa.ArrowException, NotImplementedError, OverflowError, UnicodeDecodeError) as error:
        raise GraphError(f"array: a column cannot be read as names: {one_line(error)}") from error
