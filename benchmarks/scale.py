"""Tables over processes: are losses those of one process, and what do steps, checkpoints and ranking take?

Public graphs (FB15k-237) trained by one process, by two and by three, with row-wise Adagrad, with Adam, and with each
engine that can: the greatest relative difference of the loss over 20 steps (and over `--steps`), the MRR of 1,000
validation triples after them, processor time of a rank and a step, and time of a step. Numbers that are added up in
another order differ in their last bit. What follows from that is shown by a control: one process, with the positives of
every batch in reverse order. In float64 what follows is too small to be seen.

Then synthetic graphs of growing numbers of entities: memory of a rank, a step, a checkpoint, and the ranking of 100
triples. All processes are on this machine and talk by gloo, so that more of them bring room, not speed. With
`--device cuda` they share one card.

    python benchmarks/scale.py [--quick] [--graphs fb15k-237,umls] [--entities 1e5,1e6] [--features 64]
                               [--triples 2] [--processes 1,2] [--steps 1000] [--device cuda] [--keep | --json FILE]
    python benchmarks/scale.py --device cuda --graphs umls,fb15k-237 --processes 1,2 --entities "" --json FILE
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine

STEPS = 20
COMMON = ["train.schedule=linear", "sampling.negatives=256", "train.batch=1024", "train.patience=0"]
EXCHANGE, TORCHREC = "tables.engine=exchange", "tables.engine=torchrec"
ADAGRAD = ["model.dim=128", "train.optimizer=adagrad", "train.lr=0.1"]
SLOWLY = [*ADAGRAD[:2], "train.lr=1e-3"]
CASES: dict[str, dict[str, Any]] = {
    "row-wise Adagrad": {"settings": [*ADAGRAD, EXCHANGE]},
    "row-wise Adagrad at 0.001": {"settings": [*SLOWLY, EXCHANGE]},
    "row-wise Adagrad in float64": {"settings": [*ADAGRAD, EXCHANGE], "float64": True},
    "row-wise Adagrad by TorchRec": {"settings": [*ADAGRAD, TORCHREC]},
    "row-wise Adagrad at 0.001 by TorchRec": {"settings": [*SLOWLY, TORCHREC]},
    "Adam": {"settings": ["model.dim=128", "train.lr=1e-3"]},
}
RANKED, VALIDATED = 100, 1000


def synthetic(num_entities: int, num_triples: int) -> Any:
    """Return a graph of so many entities and triples with 100 relations, the same on every rank."""
    import pyarrow as pa
    import torch

    from pairre.graph import Graph, Vocabulary
    from pairre.support.randomness import integers, key

    triples = torch.empty(num_triples + RANKED, 3, dtype=torch.int32)
    for column, (name, below) in enumerate((("h", num_entities), ("r", 100), ("t", num_entities))):
        for start in range(0, len(triples), 1 << 22):
            counter = torch.arange(start, min(start + (1 << 22), len(triples)))
            triples[start : start + len(counter), column] = integers(key(0, name), counter, below)
    names = Vocabulary(pa.array(range(num_entities)).cast(pa.string()), "entity")
    relations = Vocabulary([f"r{i}" for i in range(100)], "relation")
    return Graph("synthetic", names, relations, triples[RANKED:], triples[:RANKED], triples[:0])


# --- one rank of a job ----------------------------------------------------------------------------------------------


def work(job: dict[str, Any]) -> None:
    """One rank's part of a job; the first answers with what all of them took."""
    import pairre

    # isort: split
    import torch

    from pairre.settings import Recipe, override, resolve
    from pairre.support.device import pick_device
    from pairre.support.processes import join_processes
    from pairre.training.step import Trainer

    processes = join_processes()
    of_sizes = job.get("entities")
    graph = synthetic(of_sizes, job["triples"]) if of_sizes else pairre.load_graph(job["graph"])
    steps = f"train.steps={job['compared'] + job['timed']}"
    recipe = resolve(graph, override(Recipe(), [*COMMON, steps, *job["settings"]]), [])
    began = time.perf_counter()
    if job.get("float64"):
        _compute_in_float64()
    if job.get("reversed"):
        _reverse_batches()
    trainer = Trainer(graph, recipe, pick_device(job["device"], processes.local_rank), processes=processes)
    result: dict[str, Any] = {"seconds_to_start": time.perf_counter() - began, "losses": []}
    for _ in range(job["compared"]):
        trainer.advance(1)
        result["losses"].append(trainer.mean_loss(1))
    processor, times = time.process_time(), []
    for _ in range(job["timed"]):
        start = time.perf_counter()
        trainer.advance(1)
        trainer.step_number.item()  # waits for a GPU
        times.append(time.perf_counter() - start)
    result["ms_a_step"] = 1e3 * sorted(times)[len(times) // 2]
    own = torch.tensor([1e3 * (time.process_time() - processor) / job["timed"]], dtype=torch.float64)
    [result["processor_ms_a_rank_and_step"]] = [found.tolist() for found in processes.gather(own)]
    trainer.flush()
    state = _state(trainer, Path(job["folder"]))
    result |= _stored_and_ranked(trainer, state) if of_sizes else {"valid_mrr": _valid_mrr(trainer, state)}
    peak = torch.tensor([machine.peak_memory_gb()], dtype=torch.float64)
    [result["peak_gb_of_ranks"]] = [found.tolist() for found in processes.gather(peak)]
    if processes.is_first:
        machine.answer(result)


def _compute_in_float64() -> None:
    """Have trainers make models whose tables, and all that is computed with them, are in float64."""
    import torch

    from pairre.training import step

    build = step.build_model

    def build_double(*arguments: Any, **named: Any) -> Any:
        model = build(*arguments, **named).double()
        if model.entity.is_meta:  # which `double` leaves alone
            model.entity = torch.nn.Parameter(model.entity.detach().double())
            model._note_storage()
        return model

    step.build_model = build_double


def _reverse_batches() -> None:
    """Have samplers give the positives of every batch in reverse order, which changes a step in no other way."""
    import torch

    from pairre.training.sampling import Batch, Sampler

    draw = Sampler.draw

    def draw_reversed(sampler: Sampler, *arguments: Any) -> Batch:
        batch = draw(sampler, *arguments)
        assert len(batch.relation_ids) == len(batch.relation)  # no groups of relations, which would be reversed as well
        names = ("anchor", "true", "relation", "relation_ids", "weight")
        columns = {name: getattr(batch, name).flip(0) for name in names}
        negatives = batch.entity_ids[2 * len(batch.anchor) :]
        ids = torch.cat([columns["anchor"], columns["true"], negatives])
        return replace(batch, **columns, entity_ids=ids)

    Sampler.draw = draw_reversed  # type: ignore[method-assign]


def _state(trainer: Any, path: Path) -> Any:
    from pairre.runs import RunFolder
    from pairre.training.state import StateOverProcesses, WholeState

    path.mkdir(exist_ok=True)
    folder = RunFolder(path)
    folder.log.file.touch()
    folder.description = lambda: {"format": 2}  # type: ignore[method-assign]  # it has no other files
    return StateOverProcesses(trainer, folder) if trainer.processes.size > 1 else WholeState(trainer, folder)


def _valid_mrr(trainer: Any, state: Any) -> float:
    from pairre.evaluation import rank_both_sides, summarise

    with state.shown():
        ranks = rank_both_sides(trainer.model, trainer.graph.valid[:VALIDATED], trainer.graph.known)
    return float(summarise(ranks)["both"]["mrr"])


def _stored_and_ranked(trainer: Any, state: Any) -> dict[str, float]:
    """Time a checkpoint, its loading, and the ranking of some triples."""
    times = {}

    def timed(name: str, call: Any) -> None:
        trainer.processes.any(False)  # all begin at once
        start = time.perf_counter()
        call()
        times[name] = time.perf_counter() - start

    trainer.graph.known.side("tail"), trainer.graph.known.side("head")
    timed("checkpoint_seconds", state.store_checkpoint)
    timed("loading_seconds", state.load_checkpoint)
    timed("ranking_seconds", lambda: _valid_mrr(trainer, state))
    return times


# --- the run --------------------------------------------------------------------------------------------------------


def run_ranks(number: int, job: dict[str, Any]) -> dict[str, Any]:
    """Run a job by so many processes and return what the first answered."""
    from pairre.support.processes import STORE_FILE

    with tempfile.TemporaryDirectory(prefix="pairre-scale-") as folder:
        job = {**job, "folder": f"{folder}/run"}
        processes = []
        for rank in range(number):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": number, STORE_FILE: f"{folder}/store"}
            described = {name: str(value) for name, value in place.items()}
            environment = {**os.environ, **described, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
            command = [sys.executable, __file__, "--worker", json.dumps(job)]
            processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        said = [process.communicate()[0] for process in processes]
        shutil.rmtree(f"{folder}/run", ignore_errors=True)
    if any(process.returncode for process in processes):
        sys.exit(f"{job} by {number} processes ended with {[process.returncode for process in processes]}")
    answer: dict[str, Any] = json.loads(said[0].splitlines()[-1].removeprefix("RESULT "))
    return {"processes": number, "load_average": round(os.getloadavg()[0], 2), **answer}


def compare(name: str, numbers: list[int], job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a line for each number of processes, and one for the control, with how far losses are from the first's."""
    lines = [run_ranks(number, job) for number in numbers]
    lines.append({"reversed": True, **run_ranks(numbers[0], {**job, "reversed": True})})
    for line in lines:
        pairs = zip(lines[0]["losses"], line["losses"], strict=True)
        apart = [abs(one - other) / one for one, other in pairs]
        line["greatest_difference"] = {steps: max(apart[:steps]) for steps in sorted({STEPS, job["compared"]})}
        show(name + " reversed" * line.get("reversed", False), line)
    if job["compared"] > 10 * STEPS:
        for line in lines:
            line["losses"] = line["losses"][:: job["compared"] // STEPS]
    return lines


def show(name: str, line: dict[str, Any]) -> None:
    """Print one line."""
    processor = "/".join(f"{ms:.1f}" for ms in line["processor_ms_a_rank_and_step"])
    memory = "/".join(f"{gb:.2f}" for gb in line["peak_gb_of_ranks"])
    more = "".join(f"  {key.split('_')[0]} {line[key]:.1f} s" for key in line if key.endswith("_seconds"))
    for steps, difference in line.get("greatest_difference", {}).items():
        more += f"  {steps} steps {difference:.1e}"
    more += f"  MRR {line['valid_mrr']:.4f}" if "valid_mrr" in line else ""
    print(
        f"{name:45} {line['processes']} processes  {line['ms_a_step']:6.1f} ms  "
        f"processor {processor} ms  {memory} GB{more}",
        flush=True,
    )


def cases(device: str, chosen: str) -> dict[str, dict[str, Any]]:
    """Return the settings that can be compared here, and have one of some texts in their name."""
    from pairre.tables.torchrec_engine import is_installed

    by_torchrec = is_installed() and device == "cpu"
    found = {name: case for name, case in CASES.items() if any(part in name for part in chosen.split(","))}
    found = {name: case for name, case in found.items() if by_torchrec or TORCHREC not in case["settings"]}
    return {name: case for name, case in found.items() if device == "cpu" or not case.get("float64")}


def main() -> None:
    """Measure, print, keep."""
    assert __doc__
    parser = machine.options(__doc__)
    parser.add_argument("--graphs", default="fb15k-237", help="public graphs on which losses are compared")
    parser.add_argument("--cases", default="", help="compare only those with one of these in their name")
    parser.add_argument("--entities", default="1e5,1e6,1e7", help="of the synthetic graphs (default 1e5,1e6,1e7)")
    parser.add_argument("--features", type=int, default=64, help="of entities of synthetic graphs (default 64)")
    parser.add_argument("--triples", type=float, default=2, help="for each entity of synthetic graphs (default 2)")
    parser.add_argument("--processes", default="1,2,3", help="numbers of processes; the first is compared with")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"whose losses are compared (default {STEPS})")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    arguments = parser.parse_args()
    if arguments.worker:
        work(json.loads(arguments.worker))
        return
    about = machine.describe()
    numbers = [int(number) for number in arguments.processes.split(",")]
    common = {"timed": 10 if arguments.quick else 60, "device": arguments.device}
    compared: dict[str, list[dict[str, Any]]] = {}
    growth: dict[str, list[dict[str, Any]]] = {}
    grown = [f"model.dim={arguments.features}", "train.optimizer=adagrad", "train.lr=0.1", EXCHANGE]
    result = {
        "question": __doc__.splitlines()[0],
        "machine": about,
        "device": arguments.device,
        "settings": {"common": COMMON, "cases": CASES, "growth": grown, "triples_an_entity": arguments.triples},
        "shared": "other programs ran on the machine; load averages are those at the end of jobs",
        "compared": compared,
        "growth": growth,
    }
    for graph in filter(None, arguments.graphs.split(",")):
        for name, case in cases(arguments.device, arguments.cases).items():
            job = {**common, **case, "graph": graph, "compared": arguments.steps}
            compared[f"{graph}, {name}"] = compare(f"{graph}, {name}", numbers, job)
    sizes = [1e4] if arguments.quick else [float(size) for size in arguments.entities.split(",") if size]
    for size in sizes:
        sized = {"entities": int(size), "triples": int(arguments.triples * size)}
        for number in numbers[:2]:
            job = {**common, **sized, "settings": grown, "compared": STEPS}
            growth.setdefault(f"{size:g}", []).append(run_ranks(number, job))
            show(f"{size:g} entities", growth[f"{size:g}"][-1])
    machine.write("scale", result, arguments)


if __name__ == "__main__":
    main()
