"""How much faster than PyKEEN does PairRE train and rank on this CPU? Both in one run, on the shape of FB15k-237.

Shape: 14,541 entities, 237 relations, 272,115 training triples; 200 features, batch 1024, 256 negatives. The data is
the real FB15k-237 where $PAIRRE_DATA holds it, else random triples of that shape.

Training is timed from batch to batch, so it holds everything a step needs: drawing positives and negatives, forward,
loss, backward, Adam. PyKEEN runs its own SLCWATrainingLoop (NSSA loss, BasicNegativeSampler), timed by a callback; ours
runs Trainer.advance. Ranking is filtered with all known triples, both sides. PyKEEN ranks some test triples at the best
of a few batch sizes and without what one call costs whatever its length; ours ranks the whole test split and also pays
for building its index.

PyKEEN draws 256 negatives for each positive. Ours is timed with that (`own`) and as it trains by default, one set of
256 for the whole batch (`shared`); every positive meets 256 negatives in both. PyKEEN runs as it is (`plain`) and with
glibc told to keep freed memory (`helped`), with and without filtering false negatives (ours always filters); ratios
are against the faster. A user may also cut its work into small pieces (`pieces`: sub-batches of 32 in training, slices
of 1024 entities in ranking), which helps it too: `× best` is against the fastest of them all.

    python benchmarks/cpu.py [--quick] [--rounds N] [--keep | --json FILE]
"""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from typing import Any

import machine
from cpu_contenders import BATCH, CONTENDERS, DIM, MARGIN, NEGATIVES, RATE, SEED, SHAPE, Contender, real_data, work

BARS = {("train", "plain"): 100, ("train", "helped"): 30, ("rank", "plain"): 50, ("rank", "helped"): 20}


def measure(rounds: int, quick: bool) -> dict[Contender, list[dict[str, Any]]]:
    """Every contender once a round, one at a time, in turn."""
    results: dict[Contender, list[dict[str, Any]]] = {c: [] for c in CONTENDERS}
    for number in range(rounds):
        for contender in CONTENDERS:
            result = machine.fresh_process(__file__, {**asdict(contender), "quick": quick})
            results[contender].append(result)
            busy = result["cpu_seconds"] / result["seconds"]
            print(
                f"round {number + 1}  {contender.task:5}  {contender.label:45} {result['rate']:10,.1f} triples/s"
                f"  {result['peak_memory_gb']:5.2f} GB  {busy:.1f} cores busy",
                flush=True,
            )
    return results


def summary(results: dict[Contender, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return a line for each contender: medians over the rounds, pairs scored, ratios to the faster PyKEEN."""
    rates = {c: statistics.median(r["rate"] for r in rounds) for c, rounds in results.items()}
    lines = []
    for contender, rounds in results.items():
        pairs = NEGATIVES + 1 if contender.task == "train" else 2 * SHAPE["entities"]
        line = {
            "task": contender.task,
            "contender": contender.label,
            "negatives": contender.negatives,
            "triples_per_second": rates[contender],
            "scored_pairs_per_second": rates[contender] * pairs,
            "peak_memory_gb": max(r["peak_memory_gb"] for r in rounds),
        }
        for variant in ("plain", "helped"):
            peers = [c for c in rates if _is_peer(c, contender.task, variant)]
            line[f"times_{variant}"] = rates[contender] / max(rates[c] for c in peers)
        every = [rate for c, rate in rates.items() if (c.system, c.task) == ("pykeen", contender.task)]
        line["times_best"] = rates[contender] / max(every)
        lines.append({**line, "settings": asdict(contender), "rounds": rounds})
    return lines


def _is_peer(contender: Contender, task: str, variant: str) -> bool:
    """PyKEEN with its own sub-batches and slices, as it is or helped: what the bars are set against."""
    same = (contender.system, contender.task, contender.variant) == ("pykeen", task, variant)
    return same and not contender.pieces


def bars(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is expected, of ours as it trains by default: shared negatives, Adam on all rows."""
    chosen = {"train": Contender("pairre", "train", "shared").label, "rank": Contender("pairre", "rank", "").label}
    met = []
    for (task, variant), bar in BARS.items():
        ratio = next(x[f"times_{variant}"] for x in lines if x["task"] == task and x["contender"] == chosen[task])
        met.append({"task": task, "against": f"pykeen, {variant}", "ratio": ratio, "bar": bar, "met": ratio >= bar})
    return met


def show(lines: list[dict[str, Any]], met: list[dict[str, Any]]) -> None:
    """Print the table and whether the bars are met."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title="triples a second, median; × PyKEEN plain, helped (the faster of filtered and unfiltered), best of all"
    )
    for name in ("task", "contender", "negatives"):
        table.add_column(name)
    for name in ("triples/s", "all rounds", "M pairs/s", "peak GB", "× plain", "× helped", "× best"):
        table.add_column(name, justify="right")
    for x in lines:
        values = " ".join(f"{r['rate']:,.0f}" for r in x["rounds"])
        table.add_row(
            *(x["task"], x["contender"], x["negatives"], f"{x['triples_per_second']:,.0f}", values),
            *(f"{x['scored_pairs_per_second'] / 1e6:,.2f}", f"{x['peak_memory_gb']:.2f}"),
            *(f"{x[f'times_{kind}']:,.1f}" for kind in ("plain", "helped", "best")),
            end_section=x is lines[-1] or x["task"] != lines[lines.index(x) + 1]["task"],
        )
    console = Console(width=None if Console().is_terminal else 160)
    console.print(table)
    for x in met:
        verdict = "met" if x["met"] else "MISSED"
        console.print(f"{x['task']:5} against {x['against']:15} {x['ratio']:7.1f} ×, bar {x['bar']} ×: {verdict}")


def main() -> None:
    assert __doc__
    arguments = machine.options(__doc__).parse_args()
    if arguments.worker:
        work(json.loads(arguments.worker))
        return
    about = machine.describe()
    data = "real FB15k-237" if real_data() else f"synthetic, seed {SEED}"
    print(f"{about['cpu']}, {about['cores']} cores, load {about['load_average_at_start'][0]}; data: {data}", flush=True)
    agreement = machine.fresh_process(__file__, {"check": True, "quick": arguments.quick})
    print("same parameters in both: " + ", ".join(f"{k} {v:.3g}" for k, v in agreement.items() if "_gb" not in k))
    lines = summary(measure(arguments.rounds or (1 if arguments.quick else 3), arguments.quick))
    met = bars(lines)
    show(lines, met)
    settings = {"dim": DIM, "batch": BATCH, "negatives": NEGATIVES, "margin": MARGIN, "lr": RATE, **SHAPE}
    result = {
        "question": __doc__.splitlines()[0],
        "machine": about,
        "data": data,
        "quick": arguments.quick,
        "settings": settings,
        "agreement": agreement,
        "bars": met,
        "lines": lines,
    }
    machine.write("cpu", result, arguments)


if __name__ == "__main__":
    main()
