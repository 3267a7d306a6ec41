"""How fast does PairRE train and rank on this GPU, and what does it reach with the published settings of FB15k-237?

Times are wall clock around a synchronised device. A step is everything: batch, negatives, false-negative mask, loss,
gradients, Adam on all rows. The evaluation is the whole filtered test split, both sides.

    PAIRRE_DATA=… python benchmarks/gpu.py [--quick] [--keep | --json FILE]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import machine
import pairre
from pairre.evaluate import evaluate_triples
from pairre.ops import gpu, reference
from pairre.train import Trainer

SHAPES = ((1024, 256, 1500), (1024, 14_541, 1500), (512, 128, 200))  # queries, candidates, features


def median_ms(call: Callable[[], object], repeats: int = 20) -> float:
    times = []
    for _ in range(repeats + 3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[3:])


def kernels() -> list[dict[str, Any]]:
    """Forward and backward of the weighted L1 beside the chunked reference."""
    rows = []
    for num_q, num_c, dim in SHAPES:
        q, w, c = (torch.randn(n, dim, device="cuda", requires_grad=True) for n in (num_q, num_q, num_c))
        g = torch.randn(num_q, num_c, device="cuda")
        row: dict[str, Any] = {"queries": num_q, "candidates": num_c, "features": dim}
        for name, module in (("triton", gpu), ("reference", reference)):
            scores = module.weighted_l1(q, w, c)

            def backward(scores: torch.Tensor = scores, inputs: Any = (q, w, c), g: torch.Tensor = g) -> object:
                return torch.autograd.grad(scores, inputs, g, retain_graph=True)

            row[f"{name}_forward_ms"] = median_ms(lambda f=module.weighted_l1, a=(q, w, c): f(*a))
            row[f"{name}_backward_ms"] = median_ms(backward)
        rows.append(row)
        print(row, flush=True)
    return rows


def steps(graph: pairre.Graph) -> dict[str, float]:
    """Steady state of a training step and of the evaluation, and peak memory."""
    trainer = Trainer(graph, pairre.load_recipe("fb15k-237"), torch.device("cuda:0"))
    trainer.step()
    torch.cuda.reset_peak_memory_stats()
    step = median_ms(trainer.step, 200)
    peak = torch.cuda.max_memory_allocated() / 1e9
    evaluation = median_ms(lambda: evaluate_triples(trainer.model, graph.test, graph.known), 3)
    result = {"step_ms": step, "evaluation_ms": evaluation, "peak_memory_of_training_gb": peak}
    print(result, flush=True)
    return result


def published(graph: pairre.Graph) -> dict[str, Any]:
    """A whole run with the published settings."""
    start = time.perf_counter()
    run = pairre.train(graph, "fb15k-237", device="cuda")
    seconds = time.perf_counter() - start
    result = {"train_seconds": seconds, "seed": 0, "history": [e for e in run.history if "valid" in e]}
    result["test"] = pairre.evaluate(run)
    print({"seconds": seconds, **result["test"]["both"]}, flush=True)
    return result


def main() -> None:
    arguments = machine.options(__doc__ or "").parse_args()
    where = {**machine.describe(), "gpu": torch.cuda.get_device_name()}
    graph = pairre.load_graph("fb15k-237")
    result: dict[str, Any] = {"machine": where, "kernels": kernels(), "fb15k-237": steps(graph)}
    if not arguments.quick:
        result["fb15k-237"]["published"] = published(graph)
    machine.write("gpu", result, arguments)


if __name__ == "__main__":
    main()
