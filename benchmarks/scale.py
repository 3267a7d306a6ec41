"""Tables over processes: are losses those of one process, and what do steps, checkpoints and ranking take?

FB15k-237 with row-wise Adagrad and with Adam, trained by one process, by two and by three, with each engine that can:
the greatest relative difference of the loss over 20 steps (and over `--steps`), processor time of a rank and a step,
and time of a step. Then synthetic graphs of growing numbers of entities: memory of a rank, a step, a checkpoint, and
the ranking of 500 triples. All processes are on this machine and talk by gloo, so that more of them bring room, not
speed.

    python benchmarks/scale.py [--quick] [--entities 1e5,1e6] [--processes 1,2] [--steps 1000]
                               [--keep | --json FILE]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import machine

STEPS = 20
COMMON = ["train.schedule=linear", "sampling.negatives=256", "train.batch=1024", "train.patience=0"]
ADAGRAD = ["model.dim=128", "train.optimizer=adagrad", "train.lr=0.1"]
SETTINGS = {
    "fb15k-237, row-wise Adagrad": [*ADAGRAD, "tables.engine=exchange"],
    "fb15k-237, row-wise Adagrad by TorchRec": [*ADAGRAD, "tables.engine=torchrec"],
    "fb15k-237, Adam": ["model.dim=128", "train.lr=1e-3"],
}
GROWTH = ["model.dim=64", "train.optimizer=adagrad", "train.lr=0.1", "tables.engine=exchange"]
RANKED = 500


def synthetic(num_entities: int) -> Any:
    """Return a graph of so many entities with twice as many triples and 100 relations, the same on every rank."""
    import pyarrow as pa
    import torch

    from pairre.graph import Graph, Vocabulary
    from pairre.support.randomness import integers, key

    counter = torch.arange(2 * num_entities + RANKED)
    parts = [integers(key(0, name), counter, below) for name, below in (("h", num_entities), ("r", 100))]
    tail = integers(key(0, "t"), counter, num_entities)
    triples = torch.stack([*parts, tail], 1).int()
    names = Vocabulary(pa.array(range(num_entities)).cast(pa.string()), "entity")
    relations = Vocabulary([f"r{i}" for i in range(100)], "relation")
    train, valid = triples[RANKED:].contiguous(), triples[:RANKED].contiguous()
    return Graph(f"synthetic-{num_entities}", names, relations, train, valid, valid[:0])


def work(job: dict[str, Any]) -> None:
    """One rank's part of a job; the first answers with what all of them took."""
    import pairre

    # isort: split
    import torch

    from pairre.settings import Recipe, override, resolve
    from pairre.support.processes import join_processes
    from pairre.training.step import Trainer

    processes = join_processes()
    graph = synthetic(job["entities"]) if job.get("entities") else pairre.load_graph("fb15k-237")
    steps = f"train.steps={job['compared'] + job['timed']}"
    recipe = resolve(graph, override(Recipe(), [*COMMON, steps, *job["settings"]]), [])
    began = time.perf_counter()
    trainer = Trainer(graph, recipe, torch.device("cpu"), processes=processes)
    result: dict[str, Any] = {"seconds_to_start": time.perf_counter() - began, "losses": []}
    for _ in range(job["compared"]):
        trainer.advance(1)
        result["losses"].append(trainer.mean_loss(1))
    processor, times = time.process_time(), []
    for _ in range(job["timed"]):
        start = time.perf_counter()
        trainer.advance(1)
        times.append(time.perf_counter() - start)
    result["ms_a_step"] = 1e3 * sorted(times)[len(times) // 2]
    own = torch.tensor([1e3 * (time.process_time() - processor) / job["timed"]], dtype=torch.float64)
    [result["processor_ms_a_rank_and_step"]] = [found.tolist() for found in processes.gather(own)]
    if job.get("entities"):
        result |= _stored_and_ranked(trainer, Path(job["folder"]))
    peak = torch.tensor([machine.peak_memory_gb()], dtype=torch.float64)
    [result["peak_gb_of_ranks"]] = [found.tolist() for found in processes.gather(peak)]
    if processes.is_first:
        machine.answer(result)


def _stored_and_ranked(trainer: Any, path: Path) -> dict[str, float]:
    """Time a checkpoint, its loading, and the ranking of some triples."""
    from pairre.evaluation import rank_both_sides
    from pairre.runs import RunFolder
    from pairre.training.state import StateOverProcesses, WholeState

    path.mkdir(exist_ok=True)
    folder = RunFolder(path)
    folder.log.file.touch()
    folder.description = lambda: {"format": 2}  # type: ignore[method-assign]  # it has no other files
    state = StateOverProcesses(trainer, folder) if trainer.processes.size > 1 else WholeState(trainer, folder)
    times = {}

    def timed(name: str, call: Any) -> None:
        trainer.processes.any(False)  # all begin at once
        start = time.perf_counter()
        call()
        times[name] = time.perf_counter() - start

    def rank() -> None:
        with state.shown():
            rank_both_sides(trainer.model, trainer.graph.valid, trainer.graph.known)

    trainer.flush()
    trainer.graph.known.side("tail"), trainer.graph.known.side("head")
    timed("checkpoint_seconds", state.store_checkpoint)
    timed("loading_seconds", state.load_checkpoint)
    timed("ranking_seconds", rank)
    return times


# --- the run --------------------------------------------------------------------------------------------------------


def run_ranks(number: int, job: dict[str, Any]) -> dict[str, Any]:
    """Run a job by so many processes and return what the first answered."""
    from pairre.support.processes import STORE_FILE

    with tempfile.TemporaryDirectory(prefix="pairre-scale-") as folder:
        job = {**job, "folder": f"{folder}/run"}
        processes = []
        for rank in range(number):
            here = {"RANK": str(rank), "WORLD_SIZE": str(number), STORE_FILE: f"{folder}/store"}
            environment = {**os.environ, **here, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
            command = [sys.executable, __file__, "--worker", json.dumps(job)]
            processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        said = [process.communicate()[0] for process in processes]
        shutil.rmtree(f"{folder}/run", ignore_errors=True)
    if any(process.returncode for process in processes):
        sys.exit(f"{job} by {number} processes ended with {[process.returncode for process in processes]}")
    answer: dict[str, Any] = json.loads(said[0].splitlines()[-1].removeprefix("RESULT "))
    return {"processes": number, "load_average": round(os.getloadavg()[0], 2), **answer}


def show(name: str, line: dict[str, Any]) -> None:
    """Print one line."""
    processor = "/".join(f"{ms:.1f}" for ms in line["processor_ms_a_rank_and_step"])
    memory = "/".join(f"{gb:.2f}" for gb in line["peak_gb_of_ranks"])
    more = "".join(f"  {key.split('_')[0]} {line[key]:.1f} s" for key in line if key.endswith("_seconds"))
    print(
        f"{name:30} {line['processes']} processes  {line['ms_a_step']:6.1f} ms  "
        f"processor {processor} ms  {memory} GB{more}",
        flush=True,
    )


def main() -> None:
    """Measure, print, keep."""
    from pairre.tables.torchrec_engine import is_installed

    assert __doc__
    parser = machine.options(__doc__)
    parser.add_argument("--entities", default="1e5,1e6,4e6", help="of the synthetic graphs (default 1e5,1e6,4e6)")
    parser.add_argument("--processes", default="1,2,3", help="numbers of processes; the first is compared with")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"whose losses are compared (default {STEPS})")
    arguments = parser.parse_args()
    if arguments.worker:
        work(json.loads(arguments.worker))
        return
    about = machine.describe()
    if not is_installed():
        del SETTINGS["fb15k-237, row-wise Adagrad by TorchRec"]
    numbers = [int(number) for number in arguments.processes.split(",")]
    timed = 10 if arguments.quick else 60
    compared: dict[str, list[dict[str, Any]]] = {}
    for name, settings in SETTINGS.items():
        lines = compared[name] = [
            run_ranks(number, {"settings": settings, "timed": timed, "compared": arguments.steps}) for number in numbers
        ]
        for line in lines:
            pairs = zip(lines[0]["losses"], line["losses"], strict=True)
            apart = [abs(one - other) / one for one, other in pairs]
            line["greatest_difference"] = {steps: max(apart[:steps]) for steps in sorted({STEPS, arguments.steps})}
            show(name, line)
            for steps, difference in line["greatest_difference"].items():
                print(f"{'':30} loss differs by at most {difference:.1e} over {steps} steps", flush=True)
    sizes = [1e4] if arguments.quick else [float(size) for size in arguments.entities.split(",") if size]
    growth: dict[str, list[dict[str, Any]]] = {}
    for size in sizes:
        for number in numbers[:2]:
            job = {"settings": GROWTH, "entities": int(size), "timed": timed, "compared": STEPS}
            growth.setdefault(f"{size:g}", []).append(run_ranks(number, job))
            show(f"{size:g} entities", growth[f"{size:g}"][-1])
    described = {"question": __doc__.splitlines()[0], "machine": about, "settings": {**SETTINGS, "growth": GROWTH}}
    notes = {
        "common": COMMON,
        "shared": "other programs ran on the machine; load averages are those at the end of jobs",
    }
    machine.write("scale", {**described, **notes, "fb15k-237": compared, "growth": growth}, arguments)


if __name__ == "__main__":
    main()
