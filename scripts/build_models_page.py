"""Write docs/models.md from the models' own docstrings: python scripts/build_models_page.py."""

from __future__ import annotations

import inspect
from pathlib import Path

from pairre.models import MODELS, Model

PAGE = Path(__file__).resolve().parents[1] / "docs" / "models.md"
SIZES = (14_541, 237, 200)
_OPENING = """# Models

Made from the code by `scripts/build_models_page.py`. A higher score is more plausible, for every model. Parameters are
counted for FB15k-237 (14,541 entities, 237 relations) and `model.dim` 200.

| `model.name` | score | parameters | norm | candidates depend on the relation |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = []
    for model in MODELS:
        norms = " or ".join((model.kind, *model.kinds)) if model.kind in ("l1", "l2") else ""
        number = f"{model.num_parameters(*SIZES):,}"
        cells = (f"[`{model.name}`](#{_anchor(model)})", model.formula.replace("|", "\\|"), number, norms)
        rows.append(f"| {' | '.join(cells)} | {'yes' if model.projected else ''} |")
    sections = [f"## {model.__name__}\n\n{inspect.getdoc(model)}\n\n{_tables(model)}\n" for model in MODELS]
    return _OPENING + "\n".join(rows) + "\n\n" + "\n".join(sections)


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
