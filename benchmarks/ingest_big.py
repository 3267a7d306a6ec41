"""Out-of-core ingest: how long and in how much memory do 100 million triples become a graph on disk?

`pairre ingest` with a limit of memory against `load_graph`, which holds everything in memory, on the same 20 million
triples in the same run; then 100 million with `pairre ingest` alone, and a short training on each graph of 20 million.
Each job is a fresh process. The triples are those of `ingest.py`: named like those of Wikidata, 120 bytes a line.
`peak_memory_gb` counts pages of mapped files, which the system takes back when it needs them; `peak_anonymous_gb` does
not. Bars: 100 million in under 10 minutes, with a peak below the limit.

    python benchmarks/ingest_big.py [--quick] [--sizes 20,100] [--memory 2GB] [--folder DIR] [--keep | --json FILE]

Files need 12 GB for 100 million triples, and the graph, while it is made, about as much again. They stay in the
temporary folder, or in --folder.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import machine
from ingest import make_file

MILLION = 1_000_000
COMPARED = "ingest_as_a_multiple_of_reading_in_memory"
SECONDS_PER_100_MILLION = 600.0
SPLIT = (0.99998, 0.00001, 0.00001)  # so that ranking a split of millions is not what training waits for
SETTINGS = ["model.dim=32", "train.optimizer=adagrad", "train.steps=100", "train.batch=1024", "sampling.negatives=64"]
SETTINGS += ["train.update_rows=touched", "train.validate_every=100"]


class PeakAnonymous:
    """The most memory that is not mapped from files, looked at ten times a second."""

    def __init__(self) -> None:
        self.bytes, self._done = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            found = re.search(r"RssAnon:\s*(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
            self.bytes = max(self.bytes, int(found[1]) * 1024 if found else 0)

    def stop(self) -> float:
        """Return the most so far, in GB."""
        self._done.set()
        self._thread.join()
        return round(self.bytes / 1e9, 3)


# --- workers: each runs in a process of its own ---------------------------------------------------------------------


def read_in_memory(job: dict[str, Any]) -> dict[str, Any]:
    """From the file to a split graph with both sides of both indexes, as `pairre ingest` makes them."""
    import pairre

    graph = pairre.load_graph(job["file"], split=SPLIT)
    for known in (graph.known, graph.known_train):
        for side in ("tail", "head"):
            known.side(side)
    return {"triples": len(graph.train), "entities": graph.num_entities}


def ingest_file(job: dict[str, Any]) -> dict[str, Any]:
    """From the file to a graph on disk; seconds by step."""
    from pairre.graph.ingest import ingest

    steps: dict[str, float] = {}
    last = [time.perf_counter()]
    described = ingest.STEPS

    class Timed(dict[str, float]):
        """Notes when a step reports, by looking its share up."""

        def __getitem__(self, step: str) -> float:
            now = time.perf_counter()
            steps[step] = steps.get(step, 0.0) + now - last[0]
            last[0] = now
            return described[step]

    ingest.STEPS = Timed(described)
    folder = ingest.ingest(job["file"], job["graph"], memory=job["memory"], split=SPLIT)
    about = json.loads((folder / "graph.json").read_text(encoding="utf-8"))
    size = sum(file.stat().st_size for file in folder.iterdir())
    return {
        "triples": about["num_triples"]["train"],
        "entities": about["num_entities"],
        "graph_gb": round(size / 1e9, 2),
        "seconds_by_step": {step: round(seconds, 1) for step, seconds in steps.items()},
        "torch_loaded": "torch" in sys.modules,
    }


def train(job: dict[str, Any]) -> dict[str, Any]:
    """Train shortly into a run folder, and ask for one answer."""
    import pairre

    opened = time.perf_counter()
    graph = pairre.load_graph(job["source"], **({"split": SPLIT} if job["source"].endswith(".tsv") else {}))
    began = time.perf_counter()
    run = pairre.train(graph, overrides=SETTINGS, out=job["out"], device="cpu", progress=False)
    trained = time.perf_counter()
    assert run.path
    head, _, _ = next(graph.names(graph.train[:1]))
    found = graph.entities.find(head)
    return {
        "seconds_to_open": round(began - opened, 2),
        "seconds_to_train": round(trained - began, 2),
        "found": found == int(graph.train[0, 0]),
        "linked": (Path(job["out"]) / "graph" / "graph.json").exists(),
    }


JOBS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "read in memory": read_in_memory,
    "ingest": ingest_file,
    "train": train,
}


def work(job: dict[str, Any]) -> None:
    """One job, with what it cost."""
    anonymous, start, cpu = PeakAnonymous(), time.perf_counter(), time.process_time()
    result = JOBS[job["what"]](job)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    costs = {"seconds": round(seconds, 1), "cpu_seconds": round(cpu_seconds, 1)}
    machine.answer({**result, **costs, "peak_anonymous_gb": anonymous.stop()})


# --- the run --------------------------------------------------------------------------------------------------------


def run_job(what: str, size: int, lines: list[dict[str, Any]], **job: Any) -> None:
    """Run one job in a process of its own and keep its line."""
    load = Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
    result = machine.fresh_process(__file__, {"what": what, **job})
    source = Path(str(job.get("source") or job.get("file"))).name
    lines.append({"what": what, "million": size / MILLION, "source": source, "load_average": float(load), **result})
    print(
        f"{what:15} {size / MILLION:6g} M  {result['seconds']:7.1f} s  {result['cpu_seconds']:7.1f} processor s  "
        f"{result['peak_memory_gb']:5.2f} GB, not mapped {result['peak_anonymous_gb']:5.2f} GB  load {load}",
        flush=True,
    )


def measure(folder: Path, sizes: list[int], memory: str, keep: Callable[[list[dict[str, Any]]], None]) -> None:
    """All jobs, one at a time; `keep` gets the lines so far after each."""
    lines: list[dict[str, Any]] = []
    files = {size: make_file(folder, size) for size in sizes}
    graphs = {size: folder / f"graph-{size}" for size in sizes}
    for size in sizes:
        shutil.rmtree(graphs[size], ignore_errors=True)
        run_job("ingest", size, lines, file=str(files[size]), graph=str(graphs[size]), memory=memory)
        if size == sizes[0]:
            run_job("read in memory", size, lines, file=str(files[size]))
        else:
            shutil.rmtree(graphs[size])
        keep(lines)
    for source in (graphs[sizes[0]], files[sizes[0]]):
        out = folder / f"run-{sizes[0]}"
        shutil.rmtree(out, ignore_errors=True)
        run_job("train", sizes[0], lines, source=str(source), out=str(out))
        shutil.rmtree(out)
        keep(lines)
    shutil.rmtree(graphs[sizes[0]])


def bars(lines: list[dict[str, Any]], memory: str) -> list[dict[str, Any]]:
    """Return what was asked for, and whether it is met."""
    from pairre.support.memory import parse_bytes

    largest = [line for line in lines if line["what"] == "ingest"][-1]
    bar = SECONDS_PER_100_MILLION * largest["million"] / 100
    limit = parse_bytes(memory) / 1e9
    asked = f"ingest of {largest['million']:g} million"
    peak = largest["peak_memory_gb"]
    return [
        {"what": f"{asked}, seconds", "value": largest["seconds"], "bar": bar, "met": largest["seconds"] <= bar},
        {"what": f"{asked}, peak GB", "value": peak, "bar": limit, "met": peak <= limit},
    ]


def compare(lines: list[dict[str, Any]]) -> dict[str, float]:
    """How many times as much ingest takes as reading in memory, at the size that both did."""
    reading = next(line for line in lines if line["what"] == "read in memory")
    ingest = next(line for line in lines if line["what"] == "ingest" and line["million"] == reading["million"])
    measures = ("seconds", "cpu_seconds", "peak_memory_gb", "peak_anonymous_gb")
    return {what: round(ingest[what] / reading[what], 2) for what in measures}


def main() -> None:
    """Measure, print, keep."""
    assert __doc__
    parser = machine.options(__doc__)
    parser.add_argument("--sizes", default="20,100", help="millions of triples; the first is compared (default 20,100)")
    parser.add_argument("--memory", default="2GB", help="what `pairre ingest` may use")
    default = Path(tempfile.gettempdir()) / "pairre-benchmarks"
    parser.add_argument("--folder", type=Path, default=default, help="where generated files and graphs are written")
    arguments = parser.parse_args()
    if arguments.worker:
        work(json.loads(arguments.worker))
        return
    about = machine.describe()
    print(f"{about['cpu']}, {about['cores']} cores, load {about['load_average_at_start'][0]}", flush=True)
    sizes = [MILLION] if arguments.quick else [int(float(size) * MILLION) for size in arguments.sizes.split(",")]

    def keep(lines: list[dict[str, Any]]) -> None:
        met, compared = bars(lines, arguments.memory), compare(lines)
        machine.write("ingest-big", {**described, "bars": met, COMPARED: compared, "lines": lines}, arguments)

    described = {
        "question": __doc__.splitlines()[0],
        "machine": about,
        "duckdb": metadata.version("duckdb"),
        "shared": "other programs ran on the machine; load averages are those at the start of each job",
        "memory": arguments.memory,
        "split": SPLIT,
        "settings": SETTINGS,
        "quick": arguments.quick,
    }
    measure(arguments.folder, sizes, arguments.memory, keep)


if __name__ == "__main__":
    main()
