"""How fast are the rules of FB15k mined, against the same measures in plain Python, in one run?

Rules of one relation (subrelation, inverse, symmetry) and compositions, mined apart, at AMIE's thresholds: head
coverage 0.01, PCA confidence 0.1, and support 10. Nothing is pruned by confidence, so every path of two facts is
walked. Plain Python counts with sets and dictionaries on one core; rules and measures must be the same to the last
digit. Each run is a fresh process that has mined a tiny graph before, so imports and compilation are not in the time.
Bars: rules of one relation in 15 s, compositions in 180 s, 4 GB; 10 times as fast as plain Python.

    PAIRRE_DATA=folder python benchmarks/rules.py [--quick] [--rounds N] [--keep | --json FILE]

The graph is folder/fb15k; --quick takes folder/codex-s.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine

KINDS = {"one relation": ("subrelation", "inverse", "symmetry"), "composition": ("composition",)}
SUPPORT, HEAD_COVERAGE, PCA_CONFIDENCE = 10, 0.01, 0.1
SECONDS, MEMORY_GB, TIMES_PYTHON = {"one relation": 15.0, "composition": 180.0}, 4.0, 10.0
Found = set[tuple[tuple[str, ...], str, str, float, float, int, float]]


# --- workers: each runs in a process of its own ---------------------------------------------------------------------


def mine_pairre(graph: Any, kinds: tuple[str, ...]) -> Found:
    """Measure the library."""
    from pairre.rules import mine

    least = {"min_support": SUPPORT, "min_head_coverage": HEAD_COVERAGE, "min_pca_confidence": PCA_CONFIDENCE}
    rules = mine(graph, kinds, min_confidence=0, **least)
    return {(r.body, r.conclusion, r.kind, r.confidence, r.pca_confidence, r.support, r.head_coverage) for r in rules}


class Python:
    """Sets and dictionaries of facts."""

    def __init__(self, triples: list[tuple[str, str, str]]) -> None:
        self.facts: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self.relations_of: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.after: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.before: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.leaving: dict[str, set[str]] = defaultdict(set)
        for head, relation, tail in triples:
            self.facts[relation].add((head, tail))
            self.relations_of[head, tail].add(relation)
            self.after[relation][head].add(tail)
            self.before[relation][tail].add(head)
            self.leaving[head].add(relation)

    def bodies(self, kinds: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...], dict[str, set[str]]]]:
        """Each body as the z of every x."""
        for one in self.facts:
            if "composition" not in kinds:
                yield "subrelation", (one,), self.after[one]
                yield "inverse", (one,), self.before[one]
                continue
            for two in set().union(*(self.leaving.get(y, ()) for y in self.before[one])):
                after = self.after[two]
                paths = {x: [after[y] for y in ys if y in after] for x, ys in self.after[one].items()}
                yield "composition", (one, two), {x: set().union(*zs) for x, zs in paths.items() if zs}

    def mine(self, kinds: tuple[str, ...]) -> Found:
        """Every body in turn."""
        found: Found = set()
        for kind, body, pairs in self.bodies(kinds):
            supports: Counter[str] = Counter()
            for x, zs in pairs.items():
                for z in zs:
                    if (x, z) in self.relations_of:
                        supports.update(self.relations_of[x, z])
            size = sum(map(len, pairs.values()))
            into: Counter[str] = Counter()
            for head, support in supports.items():
                coverage = support / len(self.facts[head])
                if support < SUPPORT or coverage < HEAD_COVERAGE or (kind, body) == ("subrelation", (head,)):
                    continue
                if len(self.before[head]) > len(self.after[head]):
                    into = into or Counter(z for zs in pairs.values() for z in zs)
                    num_pca = sum(into[z] for z in self.before[head])
                else:
                    num_pca = sum(len(pairs[x]) for x in self.after[head] if x in pairs)
                if support / num_pca >= PCA_CONFIDENCE:
                    named = "symmetry" if (kind, body) == ("inverse", (head,)) else kind
                    found.add((body, head, named, support / size, support / num_pca, support, coverage))
        return found


def mine_python(graph: Any, kinds: tuple[str, ...]) -> Found:
    """Measure the peer."""
    return Python(list(graph.names(graph.train))).mine(kinds)


def work(job: dict[str, str]) -> None:
    """One mining, after a tiny one to warm up."""
    import hashlib

    from pairre import load_graph

    mine = {"pairre": mine_pairre, "plain Python": mine_python}[job["system"]]
    kinds = KINDS[job["kinds"]]
    mine(load_graph("atlas"), kinds)
    graph = load_graph(job["graph"])
    start, cpu = time.perf_counter(), time.process_time()
    found = mine(graph, kinds)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    digest = hashlib.sha256(repr(sorted(found)).encode()).hexdigest()
    machine.answer({"seconds": seconds, "cpu_seconds": cpu_seconds, "rules": len(found), "sha256": digest})


# --- the run --------------------------------------------------------------------------------------------------------


def measure(graph: Path, rounds: int) -> list[dict[str, Any]]:
    """Each mining once a round, one at a time, in turn; then medians."""
    minings = [(system, kinds) for kinds in KINDS for system in ("pairre", "plain Python")]
    results: dict[tuple[str, str], list[dict[str, Any]]] = {mining: [] for mining in minings}
    for number in range(rounds):
        for system, kinds in minings:
            result = machine.fresh_process(__file__, {"system": system, "kinds": kinds, "graph": str(graph)})
            results[system, kinds].append(result)
            print(
                f"round {number + 1}  {kinds:12}  {system:12}  {result['rules']:,} rules  {result['seconds']:7.2f} s  "
                f"{result['peak_memory_gb']:5.2f} GB",
                flush=True,
            )
    return [
        {
            "kinds": kinds,
            "system": system,
            "rules": runs[0]["rules"],
            "seconds": statistics.median(r["seconds"] for r in runs),
            "peak_memory_gb": max(r["peak_memory_gb"] for r in runs),
            "rounds": runs,
        }
        for (system, kinds), runs in results.items()
    ]


def bars(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is expected, and whether it is met."""
    met = []
    for ours, python in zip(lines[::2], lines[1::2], strict=True):
        digests = {r["sha256"] for line in (ours, python) for r in line["rounds"]}
        assert len(digests) == 1, f"{ours['kinds']}: not the same rules"
        times = python["seconds"] / ours["seconds"]
        for what, value, bar, is_met in (
            ("seconds", ours["seconds"], SECONDS[ours["kinds"]], ours["seconds"] < SECONDS[ours["kinds"]]),
            ("peak GB", ours["peak_memory_gb"], MEMORY_GB, ours["peak_memory_gb"] < MEMORY_GB),
            ("× plain Python", times, TIMES_PYTHON, times >= TIMES_PYTHON),
        ):
            met.append({"what": f"{ours['kinds']}, {what}", "value": value, "bar": bar, "met": is_met})
    return met


def main() -> None:
    assert __doc__
    arguments = machine.options(__doc__).parse_args()
    if arguments.worker:
        work(json.loads(arguments.worker))
        return
    about = machine.describe()
    print(f"{about['cpu']}, {about['cores']} cores, load {about['load_average_at_start'][0]}", flush=True)
    graph = Path(os.environ["PAIRRE_DATA"]) / ("codex-s" if arguments.quick else "fb15k")
    lines = measure(graph, arguments.rounds or (1 if arguments.quick else 3))
    met = bars(lines)
    for x in met:
        print(f"{x['what']:32} {x['value']:8.2f}, bar {x['bar']:g}: {'met' if x['met'] else 'MISSED'}")
    result = {
        "question": __doc__.splitlines()[0],
        "machine": about,
        "data": graph.name,
        "quick": arguments.quick,
        "bars": met,
        "lines": lines,
    }
    machine.write("rules", result, arguments)


if __name__ == "__main__":
    main()
