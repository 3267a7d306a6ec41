"""Count the files and functions of the package that a reader must follow: for a training step, an evaluation, a query.

A ranking query is one of all entities (`any=True`), of a run without probabilities. A full query has both.

A function counts if a run calls it at least every other step (evaluation, query), on the CPU with PairRE. Compiled
kernels call no Python functions, so they count as the function that launches them.

    python scripts/reading_cost.py            # the table
    python scripts/reading_cost.py --list     # every function, by file
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pairre

PACKAGE = Path(pairre.__file__).parent
STEPS = 400
REPEATS = 10


def traced(call: Callable[[], object], times: int) -> dict[str, set[str]]:
    """Return the functions of each file of the package that `call` enters at least `times` / 2 times."""
    calls: Counter[tuple[str, str]] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            calls[frame.f_code.co_filename, frame.f_code.co_qualname] += 1

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    files: dict[str, set[str]] = {}
    for (file, name), number in calls.items():
        if number >= times / 2 and not name.endswith(("comp>", "<genexpr>", "<lambda>")):
            files.setdefault(str(Path(file).relative_to(PACKAGE)), set()).add(name)
    return files


def main() -> None:
    """Trace the journeys and print how many files and functions each enters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print every function, by file")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    chosen = parser.parse_args()
    graph = pairre.load_graph("atlas")
    overrides = ["model.dim=16", "train.batch=32", f"train.steps={STEPS}", f"train.validate_every={STEPS}"]
    run = pairre.train(graph, overrides=overrides, device="cpu", progress=False)  # compiles what is compiled once
    head, relation, _ = next(graph.names(graph.train[:1]))
    bare = replace(run, graph=replace(graph, valid=graph.valid[:0]), calibration=None)  # no probabilities

    def query(of: pairre.Run, any: bool = False) -> None:
        for _ in range(REPEATS):
            pairre.predict(of, head=head, relation=relation, any=any)

    pairre.evaluate(run)  # these compute what graphs and runs keep
    query(run)
    query(bare, any=True)
    journeys = {
        "training step": traced(lambda: pairre.train(graph, overrides=overrides, device="cpu", progress=False), STEPS),
        "evaluation": traced(lambda: [pairre.evaluate(run) for _ in range(REPEATS)], REPEATS),
        "ranking query": traced(lambda: query(bare, any=True), REPEATS),
        "full query": traced(lambda: query(run), REPEATS),
    }
    counts = {name: {"files": len(f), "functions": sum(map(len, f.values()))} for name, f in journeys.items()}
    if chosen.json:
        print(json.dumps(counts, indent=2))
        return
    for name, files in journeys.items():
        print(f"{name}: {counts[name]['files']} files, {counts[name]['functions']} functions")
        for file, functions in sorted(files.items()) if chosen.list else ():
            print(f"  {file}: {', '.join(sorted(functions))}")


if __name__ == "__main__":
    main()
