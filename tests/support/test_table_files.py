"""Tables of results: the same rows in every format, in as many parts as they come, whole or not at all."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairre.support.errors import PairREError
from pairre.support.table_files import ENDINGS, table_file

SCHEMA = pa.schema([("name", pa.string()), ("rank", pa.int64()), ("score", pa.float64())])
ROWS = [{"name": name, "rank": n, "score": n / 4} for n, name in enumerate(["a,b", 'q"uote', "Å\u202e", "tab\there"])]


def read(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)
    if path.suffix in (".jsonl", ".ndjson"):
        return [json.loads(line) for line in text.splitlines()]
    rows = csv.DictReader(text.splitlines(), delimiter="," if path.suffix == ".csv" else "\t")
    return [{"name": row["name"], "rank": int(row["rank"]), "score": float(row["score"])} for row in rows]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("sizes", [[], [0], [4], [1, 0, 3]])
def test_rows_in_parts_are_the_rows(tmp_path, ending, sizes):
    path, start = tmp_path / f"table{ending}", 0
    with table_file(path, SCHEMA) as write:
        for size in sizes:
            write(pa.Table.from_pylist(ROWS[start : start + size], SCHEMA))
            start += size
    assert read(path) == ROWS[:start]


@pytest.mark.parametrize("ending", ENDINGS)
def test_after_an_error_there_is_no_file(tmp_path, ending):
    def write_half():
        with table_file(tmp_path / f"table{ending}", SCHEMA) as write:
            write(pa.Table.from_pylist(ROWS, SCHEMA))
            raise PairREError("stop")

    with pytest.raises(PairREError, match="stop"):
        write_half()
    assert list(tmp_path.iterdir()) == []
