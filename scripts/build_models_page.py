"""Write docs/models.md from the models' own docstrings: python scripts/build_models_page.py."""

from __future__ import annotations

import inspect
import json
import statistics
from pathlib import Path
from typing import Any

from pairre.models import MODELS, PATTERNS, Model

PAGE = Path(__file__).resolve().parents[1] / "docs" / "models.md"
RESULTS = PAGE.parent / "results"
SIZES = (14_541, 237, 200)
_OPENING = """# Models

Made from the code by `scripts/build_models_page.py`. A higher score is more plausible, for every model. Parameters are
counted for FB15k-237 (14,541 entities, 237 relations) and `model.dim` 200.

| `model.name` | score | parameters | norm | candidates depend on the relation |
|---|---|---|---|---|
"""
_PATTERNS = """
## Patterns of relations

✓: rows of relations can make the pattern hold for all entities, known or not, while the model still tells facts from
non-facts; ✗: they cannot. Measured for every model on small planted graphs by `tests/test_expressiveness.py`, which
also says why not. Whether training on a given graph finds such rows is another question.

"""
_NOTES = """
The first table of the PairRE paper has TransE, TransR, RotatE and PairRE (whose subrelation needs a constraint, as
[rules](rules.md) impose it). It agrees, but for TransR, which it gives no inverse, composition or subrelation; and its
text denies the first two to TransH, TransD and TranSparse, and, after RotatE's, all but subrelation to SE. Facts alone
do not force these patterns upon matrices, but matrices can hold them: with M = 1 TransR is TransE, rows scaled by
α ≤ 1 are never less plausible, and diagonal matrices make SE a PairRE without the sphere. KG2E owes its subrelations to
the bounds of means and variances, ComplEx-NNE and SimplE+ theirs to entities that are not negative.

"""


_RESULTS = """
## What they reach

Test MRR, mean ± standard deviation over seeds (one seed where there is none), each with its own recipe: `MODEL` on the
small graphs, `fb15k-237-MODEL` on FB15k-237 (of PairRE the published settings, `fb15k-237`). None was chosen by test
data; each says how it was (`benchmarks/models.py`, `benchmarks/gpu.py`; {files}). Counting ranks an entity by how often
train has it on that side of that relation.

"""
_GRAPHS = ("umls", "countries-s1", "fb15k-237")
_PARTS = ("models-small", "gpu-published", "models-fb15k-237")


def _results() -> str:
    """By model and graph; of several kept results of one model the newest."""
    kept = [file for part in _PARTS for file in sorted(RESULTS.glob(f"{part}-*.json"))]
    reached: dict[str, dict[str, str]] = {}
    for result in (json.loads(file.read_text(encoding="utf-8")) for file in kept):
        for graph, metrics in result.get("counting", {}).items():
            reached.setdefault("counting", {})[graph] = f"{metrics['mrr']:.3f}"
        for row in result["models"] if "models" in result else [_published(result)]:
            for graph, test in row["test"].items():
                spread = "" if test["mrr_std"] is None else f" ± {test['mrr_std']:.3f}"
                reached.setdefault(row["model"], {})[graph] = f"{test['mrr_mean']:.3f}{spread}"
    names = [name for name in ("counting", *(m.name for m in MODELS)) if name in reached]
    table = [["model", *_GRAPHS], ["---"] * 4, *([f"`{n}`", *(reached[n].get(g, "") for g in _GRAPHS)] for n in names)]
    files = ", ".join(f"[{file.stem}](results/{file.name})" for file in kept)
    return _RESULTS.format(files=files) + "".join(f"| {' | '.join(line)} |\n" for line in table)


def _published(result: dict[str, Any]) -> dict[str, Any]:
    """PairRE's runs by `benchmarks/gpu.py` as a row of `benchmarks/models.py`."""
    values = [run["mrr"] for run in result["published"]["runs"]]
    spread = {"mrr_mean": statistics.mean(values), "mrr_std": statistics.stdev(values)}
    return {"model": "pairre", "test": {"fb15k-237": spread}}


def page() -> str:
    """The whole page."""
    rows = []
    for model in MODELS:
        norms = " or ".join((model.kind, *model.kinds)) if model.kind in ("l1", "l2") else ""
        number = f"{model.num_parameters(*SIZES):,}"
        cells = (f"[`{model.name}`](#{_anchor(model)})", model.formula.replace("|", "\\|"), number, norms)
        rows.append(f"| {' | '.join(cells)} | {'yes' if model.projected else ''} |")
    marks = [[f"`{m.name}`", *("✓" if pattern in m.patterns else "✗" for pattern in PATTERNS)] for m in MODELS]
    table = [["model", *PATTERNS], ["---"] + [":-:"] * len(PATTERNS), *marks]
    patterns = "".join(f"| {' | '.join(line)} |\n" for line in table)
    sections = [f"## {model.__name__}\n\n{inspect.getdoc(model)}\n\n{_tables(model)}\n" for model in MODELS]
    return _OPENING + "\n".join(rows) + "\n" + _PATTERNS + patterns + _NOTES + _results() + "\n" + "\n".join(sections)


def _anchor(model: type[Model]) -> str:
    return model.__name__.lower()


def _tables(model: type[Model]) -> str:
    """What a row of each table holds."""

    def parts(widths: dict[str, int]) -> str:
        return ", ".join(f"`{name}` ({width:,})" for name, width in widths.items())

    widths = model(1, 1, SIZES[2])._widths
    return f"Rows at dim {SIZES[2]}: an entity has {parts(widths['entity'])}, a relation {parts(widths['relation'])}."


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
