"""Tables in host memory: what does a training step take beside one with the table on the card, from small to huge?

PairRE with d 200 on random triples of 2.5 million and 91 million entities, and of as many as `--largest` GiB of table
and optimiser hold. Each is trained with `tables.place=host` and, where it fits, `device`: time of a step, of building
the table, of ranking; both must have the same loss and the same rows to the bit. For the largest, the card may be used
for `--card` GiB only while the table is on the host.

    python benchmarks/scale_host.py [--quick] [--largest 100] [--card 16] [--seconds 240] [--keep | --json FILE]
"""

from __future__ import annotations

import gc
import hashlib
import json
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

import machine

DIM, RELATIONS, TRIPLES, RANKED = 200, 1387, 5_000_000, 100
COMMON = [f"model.dim={DIM}", "train.batch=1024", "sampling.negatives=256", "train.steps=1000000", "train.lr=0.01"]
ADAGRAD = "train.optimizer=adagrad"
SMALL = [[ADAGRAD], ["train.update_rows=touched"], ["train.update_rows=all"], [ADAGRAD, "sampling.chunk_size=1"]]
TARGET = 1.3  # times as long a step may take with the largest table as with the smallest


def synthetic(num_entities: int, num_triples: int) -> Any:
    """Return a graph of ids without names; the structure of its triples does not matter for speed."""
    import torch

    from pairre.support.randomness import integers, key
    from pairre.training.plan import graph_of_sizes

    graph = graph_of_sizes(f"{num_entities}/{RELATIONS}/{num_triples}")
    assert graph
    counter = torch.arange(num_triples + RANKED, device="cuda" if torch.cuda.is_available() else "cpu")
    columns = (("h", num_entities), ("r", RELATIONS), ("t", num_entities))
    triples = torch.stack([integers(key(0, name), counter, below) for name, below in columns], 1).int().cpu()
    train, valid = triples[RANKED:].contiguous(), triples[:RANKED].contiguous()
    return replace(graph, train=train, valid=valid, test=valid[:0])


def work(job: dict[str, Any]) -> None:
    """Measure all settings of one number of entities."""
    import torch

    from pairre.support.device import pick_device

    device = pick_device()
    graph = synthetic(job["entities"], job["triples"])
    lines = []
    for settings in job["settings"]:
        for place in ("host", "device"):
            if device.type == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                all_of_it = torch.cuda.mem_get_info()[1]
                room = job["card_gib"] * 2**30 if place == "host" and job["card_gib"] else all_of_it
                torch.cuda.set_per_process_memory_fraction(min(1.0, room / all_of_it))
            try:
                line = measure(graph, [*settings, f"tables.place={place}"], job["steps"], device)
            except torch.OutOfMemoryError as error:
                line = {"place": place, "does_not_fit": str(error).partition(". ")[0]}
            lines.append({"settings": settings, "place": place, **line})
            gc.collect()
    machine.answer({"entities": job["entities"], "card_gib_of_host_lines": job["card_gib"], "lines": lines})


def measure(graph: Any, settings: list[str], steps: int, device: Any) -> dict[str, Any]:
    """Train and rank with one place of the table."""
    import torch

    from pairre.evaluation import rank_both_sides
    from pairre.settings import Recipe, override
    from pairre.training.step import Trainer

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    began = now()
    trainer = Trainer(graph, override(Recipe(), [*COMMON, *settings]), device)
    built = now() - began
    trainer.advance(4 * trainer.steps_per_launch)  # compiles and records
    steps = max(1, steps // 10) if "sampling.chunk_size=1" in settings else steps  # each takes that much longer
    graph.known.side("tail"), graph.known.side("head")  # the index of known triples, which is made once
    times = []
    for _ in range(3):
        start = now()
        trainer.advance(steps)
        times.append(1e3 * (now() - start) / steps)
    start = now()
    trainer.flush()
    flushed = now() - start
    loss = trainer.mean_loss(trainer.progress.step)
    start = now()
    ranks = rank_both_sides(trainer.model, graph.valid, graph.known)
    ranked = now() - start
    ids = torch.unique(graph.train[:100_000, 0].long()).to(device)
    rows = trainer.model.stored["entity"].gather(ids).detach().cpu().numpy()
    table = trainer.tables.tables["entity"]
    held = sum(t.numel() * t.element_size() for t in (trainer.model.entity, *table.state().values()))
    return {
        "step_ms": statistics.median(times),
        "step_ms_of_rounds": times,
        "table_and_state_gb": held / 1e9,
        "seconds_to_build": built,
        "seconds_to_flush": flushed,
        f"seconds_to_rank_{RANKED}_triples": ranked,
        "mean_loss": loss,
        "rows": hashlib.sha256(rows.tobytes()).hexdigest(),
        "higher": sum(int(side.higher.sum()) for side in ranks.values()),
        "peak_card_gb": torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else 0.0,
    }


def compare(answer: dict[str, Any]) -> None:
    """Add to the lines of the host how they compare with those of the card, and print both."""
    for host, device in zip(answer["lines"][::2], answer["lines"][1::2], strict=True):
        if "step_ms" in host and "step_ms" in device:
            host["times_the_card"] = host["step_ms"] / device["step_ms"]
            host["same_bits"] = all(host[name] == device[name] for name in ("mean_loss", "rows", "higher"))
        for line in (host, device):
            print(f"{answer['entities']:>12,} {line['place']:6} {' '.join(line['settings'])}", end="  ")
            more = {name: line[name] for name in line if name not in ("settings", "place", "rows", "step_ms_of_rounds")}
            print({name: round(x, 4) if isinstance(x, float) else x for name, x in more.items()}, flush=True)


def main() -> None:
    """Measure, print, keep after each size."""
    import torch

    parser = machine.options(__doc__ or "")
    parser.add_argument("--largest", type=float, default=100.0, help="GiB of the largest table (default 100)")
    parser.add_argument("--card", type=float, default=16.0, help="GiB of the card that may be used then (default 16)")
    parser.add_argument("--seconds", type=float, default=240.0, help="after which no other size is begun")
    arguments = parser.parse_args()
    if arguments.worker:
        work(json.loads(arguments.worker))
        return
    began, quick = time.perf_counter(), arguments.quick
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    largest = int(arguments.largest * 2**30 / (4 * DIM + 4))
    sizes = [(20_000, SMALL, 0.0)] if quick else [(2_500_604, SMALL, 0.0), (91_230_610, SMALL[:1], 0.0)]
    if not quick:
        sizes.append((largest, SMALL[:1], arguments.card))
    result: dict[str, Any] = {
        "question": (__doc__ or "").splitlines()[0],
        "machine": {**machine.describe(), **gpu},
        "common": COMMON,
        "triples": 50_000 if quick else TRIPLES,
        "sizes": [],
    }
    for entities, settings, card in sizes:
        if time.perf_counter() - began > arguments.seconds:
            result["sizes"].append({"entities": entities, "left_out": f"{arguments.seconds:g} seconds had passed"})
            continue
        job = {"entities": entities, "settings": settings, "card_gib": card, "triples": result["triples"]}
        try:
            answer = machine.fresh_process(__file__, {**job, "steps": 5 if quick else 1000})
            compare(answer)
        except SystemExit as error:
            answer = {"entities": entities, "failed": str(error)[-2000:]}
            print(answer["failed"], file=sys.stderr, flush=True)
        result["sizes"].append(answer)
        step = [s["lines"][0]["step_ms"] for s in result["sizes"] if "step_ms" in s.get("lines", [{}])[0]]
        if step:
            result["slope"] = step[-1] / step[0]
            print(f"a step takes {result['slope']:.2f} times as long as with the fewest entities (target {TARGET})")
        machine.write("scale-host", result, arguments)


if __name__ == "__main__":
    main()
