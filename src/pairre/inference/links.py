"""Files of links, which are predictions of triples that a graph lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from pairre.inference.predict import Prediction
from pairre.support.table_files import table_file

_LABELS = ("head_label", "relation_label", "tail_label")
_TYPES = {"rank": pa.int64(), "score": pa.float32(), "probability": pa.float64(), "base_rate": pa.float64()}


def write_links(path: Path, links: Sequence[Prediction], *, probability: bool, labels: bool) -> None:
    """Write links as CSV, TSV, JSON lines or Parquet, as the ending of the file says, completely or not at all."""
    columns = [
        "rank",
        "head",
        "relation",
        "tail",
        *_LABELS * labels,
        "score",
        *["probability", "base_rate"] * probability,
    ]
    schema = pa.schema([(name, _TYPES.get(name, pa.string())) for name in columns])
    with table_file(path, schema) as write:
        write(pa.Table.from_pylist([asdict(link) for link in links], schema))
