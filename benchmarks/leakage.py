"""How much of the test split of public graphs follows from train, and how long it takes to find out.

    python benchmarks/leakage.py --keep

The graphs are those of the folder `$PAIRRE_DATA` that have a train and a test split, and the bundled atlas.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import machine
from pairre.graph import load_graph
from pairre.graph.leakage import MIN_OVERLAP, MIN_SHARED, leakage
from pairre.support.errors import PairREError


def main() -> None:
    """Measure every graph and write the result."""
    arguments = machine.options(__doc__).parse_args()
    described = machine.describe()
    data = os.environ.get("PAIRRE_DATA")
    if not data:
        sys.exit("PAIRRE_DATA: name the folder of public graphs")
    names = ["atlas", *sorted(path.name for path in Path(data).iterdir() if path.is_dir())]
    graphs: dict[str, dict[str, Any]] = {}
    for name in names[:3] if arguments.quick else names:
        try:
            graph = load_graph(name if name == "atlas" else Path(data) / name)
        except PairREError as error:
            print(f"{name} is left out: {error}")
            continue
        started = time.perf_counter()
        found = leakage(graph)
        graphs[name] = {"num_train": len(graph.train), **found, "seconds": round(time.perf_counter() - started, 3)}
        print(name, graphs[name])
    settings = {"min_overlap": MIN_OVERLAP, "min_shared": MIN_SHARED, "split": "test"}
    machine.write("leakage", {"machine": described, "settings": settings, "graphs": graphs}, arguments)


if __name__ == "__main__":
    main()
