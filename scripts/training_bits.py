"""Print a digest of the final weights of several fixed-seed CPU runs, to show that a refactoring keeps every bit.

Run it under the old and the new commit and compare the two outputs:

    python scripts/training_bits.py > before.json
    python scripts/training_bits.py > after.json && diff before.json after.json
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from safetensors.numpy import load_file

import pairre

BASE = ["model.dim=16", "train.steps=60", "train.batch=128", "sampling.negatives=32", "train.validate_every=30"]
PRODUCT = ["loss.name=cross-entropy", "loss.margin=0", "regularizer.name=n3", "regularizer.weight=0.01"]
ALL_ENTITIES = ["loss.name=k-vs-all", "sampling.negatives=0", "loss.weighting=false"]
RUNS: dict[str, list[str]] = {
    "pairre": ["model.dim=64", "train.steps=300"],
    "pairre-own-negatives": [*BASE, "sampling.share=1"],
    "pairre-chunked-negatives": [*BASE, "sampling.share=50"],
    "pairre-half-adagrad": [*BASE, "model.storage=float16", "train.optimizer=adagrad"],
    "pairre-touched-relations": [*BASE, "train.rows=touched", "loss.relations=0.5"],
    "pairre-step-schedule": [*BASE, "train.schedule=step", "train.warmup=5"],
    "pairre-tied": [*BASE, "rules.mode=tie"],
    "pairre-soft-rules": [*BASE, "rules.mode=soft", "rules.weight=0.01"],
    "complex-reciprocal": [*BASE, *PRODUCT, "model.name=complex", "model.reciprocal=true", "loss.relations=0.25"],
    "conve-k-vs-all": [*BASE, *ALL_ENTITIES, "loss.flattening=0", "model.name=conve", "loss.smoothing=0.1"],
    "distmult-unit-length": [*BASE, *PRODUCT, "model.name=distmult", "model.unit=true"],
    "transr-own-negatives": [*BASE, "model.name=transr", "sampling.share=1"],
    "transe-margin-l2": [*BASE, "model.name=transe", "loss.name=margin", "model.norm=l2"],
    "rotate-logistic": [*BASE, "model.name=rotate", "loss.name=logistic"],
    **{
        name: [*BASE, f"model.name={name}"]
        for name in ("transr", "transparse-separate", "kg2e", "ote", "gc-ote", "rgcn", "triplere", "rescal", "quate")
    },
}


def digest(folder: Path) -> str:
    """Return a SHA-256 over the names and bytes of the weights in a run folder."""
    total = hashlib.sha256()
    for name, array in sorted(load_file(folder / "model.safetensors").items()):
        total.update(name.encode() + array.tobytes())
    return total.hexdigest()[:16]


def main() -> None:
    """Train each run of `RUNS` on the bundled graph and print its digest."""
    graph = pairre.load_graph("atlas")
    with tempfile.TemporaryDirectory() as temporary:
        rules = Path(temporary) / "rules.tsv"
        rules.write_text(
            "body\thead\tkind\tconfidence\nborders\tborders\tsymmetry\t0.9\ncapital_of\tlocated_in\tsubrelation\t0.8\n"
        )
        digests = {}
        for name, overrides in RUNS.items():
            followed = None
            if "rules.mode=soft" in overrides:
                followed = rules
            elif "rules.mode=tie" in overrides:
                followed = Path(temporary) / "tie.tsv"
                followed.write_text("body\thead\tkind\tconfidence\ncapital_of\tlocated_in\tsubrelation\t0.8\n")
            run = pairre.train(graph, overrides=overrides, rules=followed, device="cpu", progress=False)
            digests[name] = digest(run.save(Path(temporary) / name))
    print(json.dumps(digests, indent=2))


if __name__ == "__main__":
    main()
