"""How accurate is a model of a graph so many seconds after the launch of the process that trains it?

For each number of seconds and each way to train, a fresh process reads the graph, times a few steps, takes as many as
fit, and stores the run; the clock runs from its launch until the run is in its folder. Then test is ranked, once. A run
has a course on validation, too, with seconds since the launch. `effort` is `pairre train GRAPH --effort standard` with
what is left of the time; the other ways are recipes, `WAYS`.

    PAIRRE_DATA=… python benchmarks/time_to_accuracy.py [GRAPH] [--seconds 10 30 120 600] [--ways complex effort]
        [--set model.dim=500] [--device cuda] [--until SECONDS] [--keep | --json FILE]
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine

WAYS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "complex": ("fb15k-237/complex-n3", {"train.epochs": 0}),
    "pairre": ("fb15k-237-best", {}),
    "default": (None, {}),
}
METRICS = ("mrr", "hits_at_1", "hits_at_10")
_SAVING = {"cpu": 2.0, "cuda": 0.7}  # seconds
_VALIDATIONS, _JUDGED = 5, 2_000


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Train as a job says, and return the seconds since its launch, the course of validation, and the metrics."""
    import torch

    import pairre
    from pairre.settings import resolve
    from pairre.studies.effort.probe import Cost, Probe

    def elapsed() -> float:
        return time.time() - job["launched"]

    logging.disable()
    graph, curve = pairre.load_graph(job["graph"]), list[dict[str, float]]()
    found: dict[str, Any] = {"seconds_until_graph": elapsed()}
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        if job["way"] == "effort":
            left, said = job["seconds"] - elapsed(), list[str]()
            run = pairre.train_best(graph, time=left, out=out, device=job["device"], progress=False, notify=said.append)
            found["said"] = said
        else:
            recipe, settings = WAYS[job["way"]]
            settings = {**settings, "train.patience": 0, "train.validate_triples": _JUDGED, **job["set"]}
            chosen = resolve(graph, recipe, {**settings, "train.validate_every": 0})
            cost = Probe(graph, torch.device(job["device"])).cost(chosen)
            if not isinstance(cost, Cost):
                raise SystemExit(cost)
            left = job["seconds"] - elapsed() - _SAVING[job["device"]]
            steps = cost.steps_in(left, _JUDGED, _VALIDATIONS)
            every = -(-steps // _VALIDATIONS)
            chosen = replace(chosen, train=replace(chosen.train, steps=steps, validate_every=every))
            found |= {"steps": steps, "dim": chosen.model.dim, "seconds_until_steps": elapsed()}

            def note(step: int, mrr: float) -> None:
                curve.append({"step": step, "valid_mrr": mrr, "seconds": elapsed()})

            run = pairre.train(graph, chosen, device=job["device"], progress=False, on_validation=note)
            run.save(out)
        found |= {"seconds": elapsed(), "curve": curve}
        for split in ("valid", "test"):
            both = pairre.evaluate(run, split)["both"]  # type: ignore[arg-type]
            found[split] = {key: both[key] for key in METRICS}
    return found


def main() -> None:
    """Measure every way at every number of seconds, and write the result after each."""
    parser = machine.options(__doc__ or "")
    parser.add_argument("graph", nargs="?", default="fb15k-237")
    parser.add_argument("--seconds", nargs="+", type=float, default=[10, 30, 120, 600], help="since the launch")
    parser.add_argument("--ways", nargs="+", default=["complex", "effort"], help=f"effort, {', '.join(WAYS)}")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes of the recipes")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--until", type=float, default=float("inf"), help="seconds after which nothing is begun")
    arguments = parser.parse_args()
    if arguments.worker:
        machine.answer(work(json.loads(arguments.worker)))
        return
    started = time.monotonic()
    changes = {key: json.loads(value) for key, _, value in (text.partition("=") for text in arguments.set)}
    result: dict[str, Any] = {"machine": {**machine.describe(), "device": arguments.device}, "runs": []}
    for seconds in arguments.seconds[: 1 if arguments.quick else None]:
        for way in arguments.ways:
            if time.monotonic() - started + seconds > arguments.until:
                continue
            about = {"graph": arguments.graph, "way": way, "set": changes, "seconds_given": seconds}
            job = {**about, "seconds": seconds, "device": arguments.device, "launched": time.time()}
            try:
                found = {**about, **machine.fresh_process(__file__, job)}
                print(
                    f"{way:8} {seconds:5.0f} s: {found['seconds']:6.1f} s, valid {found['valid']['mrr']:.4f}",
                    flush=True,
                )
            except SystemExit as failure:
                print(failure, flush=True)
                found = {**about, "error": str(failure)}
            result["runs"].append(found)
            name = f"time-to-accuracy-{'gpu' if arguments.device == 'cuda' else 'cpu'}"
            machine.write(name, result, arguments)


if __name__ == "__main__":
    main()
