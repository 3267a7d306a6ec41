"""Compare the training step, the evaluation and single queries of this checkout with another commit, in one run.

    git worktree add ../before COMMIT
    PAIRRE_DATA=… python benchmarks/against.py ../before [--device cuda] [--rounds 5] [--keep | --json FILE]

Both checkouts take turns in fresh processes: the same FB15k-237, recipe and seed. Kept are all rounds, the ratios of
medians and of the fastest rounds, of wall time and of the processor time of all threads (the fastest rounds and
processor time are steadier on a machine that others use, too), and a digest of the weights after training, which
shows whether both computed the same bits. On the CPU a step has 200 features, batch 1024 and 256 shared negatives; on
a GPU the settings are those of the published recipe.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine

HERE = Path(__file__).resolve().parents[1]
SMALL = ["model.dim=200", "train.batch=1024", "sampling.negatives=256", "train.steps=100000"]


def worker(job: dict[str, Any]) -> None:
    """Measure the checkout on the import path; its interface may be that of before or after the redesign."""
    import pairre  # first: it sets how OpenMP threads wait

    # isort: split
    import torch

    try:
        from pairre.evaluation import rank_both_sides
        from pairre.settings import override
        from pairre.training.step import Trainer
    except ImportError:
        from pairre.evaluate import evaluate_triples as rank_both_sides
        from pairre.recipe import override
        from pairre.trainer import Trainer

    on_gpu = job["device"] == "cuda"
    device = torch.device("cuda:0" if on_gpu else "cpu")

    def seconds(call: Callable[[], object], repeats: int) -> tuple[float, float]:
        """Return the least wall time and the least processor time of some calls."""
        times = []
        for _ in range(repeats):
            if on_gpu:
                torch.cuda.synchronize()
            start = time.perf_counter(), time.process_time()
            call()
            if on_gpu:
                torch.cuda.synchronize()
            times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
        wall, processor = zip(*times, strict=True)
        return min(wall), min(processor)

    graph = pairre.load_graph("fb15k-237")
    recipe = pairre.load_recipe("fb15k-237")
    trainer = Trainer(graph, recipe if on_gpu else override(recipe, SMALL), device)
    advance = getattr(trainer, "advance", None) or trainer.step
    flush = getattr(trainer, "flush", None) or trainer.settle
    num_steps = 20 if job["quick"] else 1000 if on_gpu else 60
    advance(80 if on_gpu else 4)  # compiles, and on a GPU captures
    step = [1e3 * least / num_steps for least in seconds(lambda: advance(num_steps), 3)]
    flush()
    test = graph.test if on_gpu and not job["quick"] else graph.test[: 200 if job["quick"] else 2000]
    rank_both_sides(trainer.model, test[:100], graph.known)
    evaluation = seconds(lambda: rank_both_sides(trainer.model, test, graph.known), 3)
    run = pairre.Run(graph, trainer.recipe, trainer.model)
    asked = [{"head": head, "relation": relation} for head, relation, _ in graph.names(graph.test[:100])]
    pairre.predict(run, **asked[0])  # fits the probabilities
    query = [1e3 * least / len(asked) for least in seconds(lambda: [pairre.predict(run, **one) for one in asked], 3)]
    digest = hashlib.sha256()
    for name, value in sorted(trainer.model.state_dict().items()):
        digest.update(name.encode() + value.cpu().numpy().tobytes())
    measured = {
        "step_ms": step[0],
        "step_cpu_ms": step[1],
        "evaluation_s": evaluation[0],
        "evaluation_cpu_s": evaluation[1],
        "query_ms": query[0],
        "query_cpu_ms": query[1],
    }
    machine.answer(measured | {"weights": digest.hexdigest()[:16]})


def commit_of(checkout: Path) -> str:
    """Return the commit of a checkout, or its folder's name where that is not to be had."""
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or checkout.name


def main() -> None:
    """Measure both checkouts in turns and keep the ratios."""
    parser = machine.options(__doc__)
    parser.add_argument("other", nargs="?", type=Path, help="the other checkout")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    if arguments.worker:
        import json

        worker(json.loads(arguments.worker))
        return
    if arguments.other is None or not (arguments.other / "src" / "pairre").is_dir():
        sys.exit(f"{arguments.other}: a checkout with src/pairre expected")
    checkouts = {"before": arguments.other.resolve(), "after": HERE}
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
    for number in range(1 if arguments.quick else arguments.rounds or 5):
        for name in sorted(checkouts, reverse=number % 2 == 0):  # each begins every other round
            checkout = checkouts[name]
            os.environ["PYTHONPATH"] = str(checkout / "src")
            rounds[name].append(machine.fresh_process(__file__, {"device": arguments.device, "quick": arguments.quick}))
            print(f"round {number + 1}, {name}: {rounds[name][-1]}", flush=True)
    ratios = {
        f"{how.__name__} {key}": how(one[key] for one in rounds["after"]) / how(one[key] for one in rounds["before"])
        for key in ("step_ms", "step_cpu_ms", "evaluation_s", "evaluation_cpu_s", "query_ms", "query_cpu_ms")
        for how in (statistics.median, min)
    }
    same = len({one["weights"] for runs in rounds.values() for one in runs}) == 1
    print(f"after / before: {ratios}; same weights to the bit: {same}")
    result = {
        "machine": machine.describe() | {"device": arguments.device},
        "commits": {name: commit_of(checkout) for name, checkout in checkouts.items()},
        "rounds": rounds,
        "ratios": ratios,
        "same_bits": same,
    }
    machine.write(f"against-{arguments.device}", result, arguments)


if __name__ == "__main__":
    main()
