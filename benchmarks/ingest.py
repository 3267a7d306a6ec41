"""How fast does a file of named triples become a graph? 10 million triples, and 1 million against PyKEEN, in one run.

Ours is `pairre.load_graph` (names to ids, repeated triples left out, split 90/5/5) and the index of known triples of
both sides. PyKEEN's is `TriplesFactory.from_path` alone, without a split or an index. Each run is a fresh process that
has loaded a file of a thousand triples before, so imports and compilation are not in the time; the file is in the
page cache. Bars: 10 million in under 30 s and 6 GB; 1 million at least 5 times as fast as PyKEEN.

The triples are random by seed: ten of them for each entity, a few entities in most of them, 500 relations, names as in
Wikidata. The files (1.3 GB in all) are made once and stay in the temporary folder, or in --folder.

    python benchmarks/ingest.py [--quick] [--rounds N] [--folder DIR] [--keep | --json FILE]
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import machine

SEED, NUM_RELATIONS, TRIPLES_PER_ENTITY = 0, 500, 10
LARGE, SMALL, TINY = 10_000_000, 1_000_000, 1_000
SECONDS, MEMORY_GB, TIMES_PYKEEN = 30.0, 6.0, 5.0


# --- data -----------------------------------------------------------------------------------------------------------


def make_file(folder: Path, num_triples: int) -> Path:
    """Return a TSV file of random named triples, made if it is not there."""
    path = folder / f"triples-{num_triples}-seed-{SEED}.tsv"
    if not path.exists():
        print(f"making {path.name} …", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        _write_triples(part, num_triples)
        part.replace(path)
    return path


def _write_triples(path: Path, num_triples: int) -> None:
    """Ids drawn with a skew, then names, a million lines at a time."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv

    random = np.random.default_rng(SEED)
    num_entities = num_triples // TRIPLES_PER_ENTITY
    number = random.permutation(num_entities) + 1  # so that frequent entities are not those with short names
    entities = pa.array([f"http://www.wikidata.org/entity/Q{i}" for i in number])
    relations = pa.array([f"http://www.wikidata.org/prop/direct/P{i + 1}" for i in range(NUM_RELATIONS)])
    options = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    schema = pa.schema([(name, pa.string()) for name in ("head", "relation", "tail")])
    with csv.CSVWriter(path, schema, write_options=options) as writer:
        for start in range(0, num_triples, 1_000_000):
            size = min(1_000_000, num_triples - start)
            columns = [
                names.take(pa.array((len(names) * random.random(size) ** power).astype(np.int64)))
                for names, power in ((entities, 2.5), (relations, 3), (entities, 2))
            ]
            writer.write_table(pa.table(columns, schema=schema))


def read_through(path: Path) -> None:
    """Put a file into the page cache."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


# --- workers: each runs in a process of its own ---------------------------------------------------------------------


def load_pairre(path: Path) -> dict[str, Any]:
    """From the file to a split graph with both sides of its index."""
    from pairre import load_graph

    start = time.perf_counter()
    graph = load_graph(path)
    loaded = time.perf_counter()
    for side in ("tail", "head"):
        graph.known.side(side)
    indexed = time.perf_counter()
    parts = {"load_and_split": loaded - start, "index": indexed - loaded}
    sizes = {split: len(graph.split(split)) for split in ("train", "valid", "test")}
    counts = {"entities": graph.num_entities, "relations": graph.num_relations, **sizes}
    return {"seconds": indexed - start, "parts": parts, "counts": counts}


def load_pykeen(path: Path) -> dict[str, Any]:
    """From the file to PyKEEN's factory of id triples."""
    from pykeen.triples import TriplesFactory

    start = time.perf_counter()
    factory = TriplesFactory.from_path(path)
    seconds = time.perf_counter() - start
    counts = {
        "entities": factory.num_entities,
        "relations": factory.num_relations,
        "triples": factory.num_triples,
    }
    return {"seconds": seconds, "counts": counts}


def work(job: dict[str, str]) -> None:
    """One load, after a tiny one to warm up."""
    load = {"pairre": load_pairre, "pykeen": load_pykeen}[job["system"]]
    load(Path(job["tiny"]))
    read_through(Path(job["file"]))
    cpu = time.process_time()
    result = load(Path(job["file"]))
    machine.answer({**result, "cpu_seconds": time.process_time() - cpu})


# --- the run --------------------------------------------------------------------------------------------------------


def measure(folder: Path, sizes: tuple[int, int], rounds: int) -> list[dict[str, Any]]:
    """Each load once a round, one at a time, in turn; then medians."""
    large, small = sizes
    files = {size: make_file(folder, size) for size in (large, small, TINY)}
    loads = (("pairre", large), ("pykeen", small), ("pairre", small))
    results: dict[tuple[str, int], list[dict[str, Any]]] = {load: [] for load in loads}
    for number in range(rounds):
        for system, size in loads:
            job = {"system": system, "file": str(files[size]), "tiny": str(files[TINY])}
            result = machine.fresh_process(__file__, job)
            results[system, size].append(result)
            print(
                f"round {number + 1}  {system:6}  {size:10,} triples  {result['seconds']:7.2f} s  "
                f"{result['peak_memory_gb']:5.2f} GB",
                flush=True,
            )
    return [
        {
            "system": system,
            "triples": size,
            "file_mb": round(files[size].stat().st_size / 1e6, 1),
            "seconds": statistics.median(r["seconds"] for r in runs),
            "peak_memory_gb": max(r["peak_memory_gb"] for r in runs),
            "rounds": runs,
        }
        for (system, size), runs in results.items()
    ]


def bars(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is expected, and whether it is met."""
    large, pykeen, pairre = lines
    times = pykeen["seconds"] / pairre["seconds"]
    asked = f"{large['triples']:,} triples"
    return [
        {"what": f"{asked}, seconds", "value": large["seconds"], "bar": SECONDS, "met": large["seconds"] < SECONDS},
        {
            "what": f"{asked}, peak GB",
            "value": large["peak_memory_gb"],
            "bar": MEMORY_GB,
            "met": large["peak_memory_gb"] < MEMORY_GB,
        },
        {
            "what": f"{pairre['triples']:,} triples, × PyKEEN",
            "value": times,
            "bar": TIMES_PYKEEN,
            "met": times >= TIMES_PYKEEN,
        },
    ]


def show(lines: list[dict[str, Any]], met: list[dict[str, Any]]) -> None:
    """Print the table and whether the bars are met."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="from a TSV file of names to ids (ours: split and index too), median")
    table.add_column("system")
    for name in ("triples", "file MB", "seconds", "all rounds", "M triples/s", "peak GB"):
        table.add_column(name, justify="right")
    for x in lines:
        values = " ".join(f"{r['seconds']:.2f}" for r in x["rounds"])
        table.add_row(
            *(x["system"], f"{x['triples']:,}", f"{x['file_mb']:,.0f}", f"{x['seconds']:.2f}", values),
            *(f"{x['triples'] / x['seconds'] / 1e6:.2f}", f"{x['peak_memory_gb']:.2f}"),
        )
    console = Console(width=None if Console().is_terminal else 120)
    console.print(table)
    for x in met:
        console.print(f"{x['what']:32} {x['value']:7.2f}, bar {x['bar']:g}: {'met' if x['met'] else 'MISSED'}")


def main() -> None:
    assert __doc__
    parser = machine.options(__doc__)
    default = Path(tempfile.gettempdir()) / "pairre-benchmarks"
    parser.add_argument("--folder", type=Path, default=default, help="where the generated files are kept")
    arguments = parser.parse_args()
    if arguments.worker:
        work(json.loads(arguments.worker))
        return
    about = machine.describe()
    print(f"{about['cpu']}, {about['cores']} cores, load {about['load_average_at_start'][0]}", flush=True)
    sizes = (LARGE // 10, SMALL // 10) if arguments.quick else (LARGE, SMALL)
    lines = measure(arguments.folder, sizes, arguments.rounds or (1 if arguments.quick else 3))
    met = bars(lines)
    show(lines, met)
    result = {
        "question": __doc__.splitlines()[0],
        "machine": about,
        "data": f"synthetic, seed {SEED}",
        "quick": arguments.quick,
        "bars": met,
        "lines": lines,
    }
    machine.write("ingest", result, arguments)


if __name__ == "__main__":
    main()
