"""Is what `pairre train --effort` finds better than the default settings, and how long does it take?

For each graph and seed: `train` with its defaults, and each effort, every one in a process of its own. Seconds are from
the launch of that process until the run is in its folder; ranking for this report comes after. What is tried is in
`studies/effort` and judged by validation; this script only reports. Test is ranked once for each run, and its figures
are in the file alone, so that nobody chooses by them while it runs. The file is written after every run.

    PAIRRE_DATA=… python benchmarks/effort.py [--graphs umls nations …] [--efforts standard quick] [--seeds 3]
        [--device cuda] [--warm-up] [--until SECONDS] [--keep | --json FILE]

`--until` starts nothing that would end later, by what the same took before. `--warm-up` first trains the smallest graph
once, so that no kernel has to be compiled afterwards; that run is in the file, too.
"""

from __future__ import annotations

import json
import logging
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import machine

GRAPHS = ("fb15k-237", "wn18rr", "codex-s", "dbpedia-music", "umls", "nations", "sports", "atlas")
METRICS = ("mrr", "hits_at_1", "hits_at_10")
_KNOWN = ("effort", "seconds", "costs", "left_out", "rounds", "members", "member_seconds", "finish_seconds", "judged")


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Train as a job says, and return the seconds since its launch, the metrics, and what an effort did."""
    import pairre

    logging.disable()
    graph, said = pairre.load_graph(job["graph"]), list[str]()
    opened = time.time() - job["launched"]
    with tempfile.TemporaryDirectory() as scratch:
        options: dict[str, Any] = {"out": Path(scratch) / "run", "device": job["device"], "progress": False}
        if job["way"] == "default":
            steps = {"train.steps": 60} if job["quick"] else {}
            run = pairre.train(graph, overrides={"train.seed": job["seed"], **steps}, **options)
        else:
            seconds = 10.0 if job["quick"] else None
            run = pairre.train_best(
                graph, effort=job["way"], time=seconds, seed=job["seed"], notify=said.append, **options
            )
        found: dict[str, Any] = {"seconds": time.time() - job["launched"], "seconds_until_graph": opened}
        plan = Path(scratch) / "run" / "plan.json"
        if plan.exists():
            kept = json.loads(plan.read_text(encoding="utf-8"))
            found |= {"said": said, "chosen": kept["chosen"], "trials": kept["trials"]}
            found["plan"] = {key: kept["plan"][key] for key in _KNOWN}
        for split in ("valid", "test"):
            if len(graph.split(split)):  # type: ignore[arg-type]
                both = pairre.evaluate(run, split)["both"]  # type: ignore[arg-type]
                found[split] = {key: both[key] for key in METRICS}
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean and the standard deviation of MRR by way and split, and of seconds."""
    found: dict[str, Any] = {}
    for way in dict.fromkeys(run["way"] for run in runs):
        if not (ended := [run for run in runs if run["way"] == way and "error" not in run]):
            continue
        found[way] = {"seconds": statistics.mean(run["seconds"] for run in ended)}
        for split in ("valid", "test"):
            values = [run[split]["mrr"] for run in ended if split in run]
            if values:
                spread = statistics.stdev(values) if len(values) > 1 else None
                found[way][split] = {"mrr": statistics.mean(values), "std": spread}
    if default := found.get("default"):
        for way in found:
            found[way]["times_the_default"] = found[way]["seconds"] / default["seconds"]
    return found


def trained(graph: str, way: str, seed: int, device: str, quick: bool) -> dict[str, Any]:
    """Return what a process that trained a graph in one way found, or how it failed, and print its validation MRR."""
    about = {"graph": graph, "way": way, "seed": seed}
    job = {**about, "device": device, "quick": quick, "launched": time.time()}
    try:
        found = {**about, **machine.fresh_process(__file__, job)}
    except SystemExit as failure:
        print(failure, flush=True)
        return {**about, "error": str(failure)}
    valid = f"valid {found['valid']['mrr']:.4f}" if "valid" in found else "no validation split"
    kept = found.get("chosen", {}).get("what", "")
    print(f"{graph:13} seed {seed}  {way:9} {valid}  {found['seconds']:6.1f} s  {kept}", flush=True)
    return found


def main() -> None:
    """Measure every graph and write the result."""
    parser = machine.options(__doc__ or "")
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), help="names of public graphs")
    parser.add_argument("--efforts", nargs="+", default=["standard"], help="beside the default settings")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each graph; all graphs with one seed first")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--until", type=float, default=float("inf"), help="seconds after which nothing is begun")
    parser.add_argument("--warm-up", action="store_true", help="train the smallest graph once before")
    arguments = parser.parse_args()
    if arguments.worker:
        machine.answer(work(json.loads(arguments.worker)))
        return
    started, runs = time.monotonic(), list[dict[str, Any]]()
    result: dict[str, Any] = {"machine": {**machine.describe(), "device": arguments.device}, "graphs": {}}
    if arguments.warm_up:
        result["first"] = trained("nations", arguments.efforts[0], 0, arguments.device, arguments.quick)
    for seed in range(1 if arguments.quick else arguments.seeds):
        for graph in arguments.graphs:
            for way in ("default", *arguments.efforts):
                before = [run["process_seconds"] for run in runs if (run["graph"], run["way"]) == (graph, way)]
                if time.monotonic() - started + max(before, default=0.0) > arguments.until:
                    continue
                runs.append(trained(graph, way, seed, arguments.device, arguments.quick))
                of_graph = [run for run in runs if run["graph"] == graph]
                result["graphs"][graph] = {"mean": summary(of_graph), "runs": of_graph}
                machine.write("effort" if arguments.device == "cpu" else "effort-gpu", result, arguments)


if __name__ == "__main__":
    main()
