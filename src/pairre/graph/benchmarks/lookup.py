"""From the name of a benchmark to a folder of its splits.

A copy is looked for in `$PAIRRE_DATA/<name>`, which is trusted as it is, and then in the cache; otherwise the graph is
downloaded into the cache.
"""

from __future__ import annotations

import os
from pathlib import Path

from pairre.graph.benchmarks.entry import Benchmark
from pairre.graph.benchmarks.obtain import obtain, splits_in
from pairre.graph.benchmarks.table import BENCHMARKS
from pairre.support.errors import DownloadError, GraphError, suggest
from pairre.support.files import cache_folder


def names() -> tuple[str, ...]:
    """Return the names of all benchmarks, in the order of the table."""
    return tuple(benchmark.name for benchmark in BENCHMARKS)


def find(name: str) -> Benchmark:
    """Return the benchmark of a name in any case; the error for an unknown name lists the nearest and all names."""
    for benchmark in BENCHMARKS:
        if benchmark.name == name.lower():
            return benchmark
    known = ("atlas", *names())
    raise GraphError(f"{name}: no graph of that name{suggest(name.lower(), known)}; names: {', '.join(known)}")


def locate(name: str, *, cache: Path | None = None, unverified: bool = False) -> Path:
    """Return a folder with the splits of a benchmark as `train.tsv[.gz]` and so on; download them if there is no copy.

    A folder in `$PAIRRE_DATA` without a train split is passed over. If the download fails too, the error mentions that
    folder, or that `$PAIRRE_DATA` is not a folder. `cache` replaces the cache folder. `unverified` permits the download
    of a graph of which no checksums are known.
    """
    benchmark = find(name)
    passed_over = ""
    if data := os.environ.get("PAIRRE_DATA"):
        local = Path(data) / benchmark.name
        present = splits_in(local)
        if "train" in present:
            return local
        if present:
            passed_over = f" ({local} has {' and '.join(present)}, but no train split)"
        elif not Path(data).is_dir():
            passed_over = f" (PAIRRE_DATA is {data}, which is no folder)"
    kept = (cache or cache_folder()) / "graphs" / benchmark.name
    if "train" in splits_in(kept):
        return kept
    try:
        obtain(benchmark, kept, unverified=unverified)
    except DownloadError as error:
        if passed_over:
            raise DownloadError(f"{error}{passed_over}") from error
        raise
    return kept
