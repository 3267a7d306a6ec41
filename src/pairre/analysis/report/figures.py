"""The figures of a report as PNG and SVG files, for papers and slides; needs the extra `plots`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pairre.analysis.patterns import FORMULAS, KINDS, Kind, Vectors, products
from pairre.evaluation.metrics import METRICS
from pairre.support.errors import MissingExtraError
from pairre.support.files import disk_error, written_whole
from pairre.support.text import visible

_COLOUR, _GREY = "#2f5fd0", "#9aa4b0"


def check_matplotlib() -> None:
    """Notify early what is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtraError("--figures", "plots") from None


def write_figures(values: dict[str, Any], vectors: Vectors | None, folder: Path) -> list[Path]:
    """Draw what a report shows into a folder, and return the files."""
    return _saved(lambda: _figures(values, vectors), folder)


def write_pattern(
    name: str, kind: Kind, ids: tuple[int, ...], names: Sequence[str], vectors: Vectors, folder: Path
) -> list[Path]:
    """Draw the histograms of one pattern; `names` are those of its relations."""
    titles = dict(zip(ids, names, strict=True))
    return _saved(lambda: iter([(name, _pattern(kind, ids, titles, vectors))]), folder)


def _saved(figures: Callable[[], Iterator[tuple[str, Any]]], folder: Path) -> list[Path]:
    import matplotlib

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(folder, error) from error
    written = []
    settings: dict[Any, Any] = {
        "text.parse_math": False,
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.spines.right": False,
        "axes.spines.top": False,
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in a script that the font lacks
        for name, figure in figures():
            for kind in ("png", "svg"):
                path = folder / f"{name}.{kind}"
                with written_whole(path) as part:
                    figure.savefig(part, format=kind, dpi=200)
                written.append(path)
    return written


def _figures(values: dict[str, Any], vectors: Vectors | None) -> Iterator[tuple[str, Any]]:
    curves = {key: points for key, points in values["curves"].items() if points}
    if curves:
        figure, axes = _canvas(len(curves), 4, 2.6)
        for axis, (key, points) in zip(axes, curves.items(), strict=True):
            axis.plot(*np.array(points).T, color=_COLOUR)
            axis.set(xlabel="step", ylabel={"loss": "loss", "valid": "validation MRR"}[key])
        yield "training", figure
    if "evaluation" in values:
        yield "categories", _categories(values["evaluation"]["by_category"])
    names = dict(enumerate(values["relations"]["name"]))
    for kind in KINDS if vectors is not None else ():
        assert vectors is not None
        if values["patterns"][kind]:
            yield kind, _pattern(kind, values["patterns"][kind][0]["ids"], names, vectors)
    yield "map", _map(values["map"])


def _canvas(columns: int, width: float, height: float) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * width, height), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def _categories(groups: dict[str, Any]) -> Any:
    figure, (axis,) = _canvas(1, 5, 2.8)
    place = np.arange(len(groups))
    for shift, side, colour in ((-0.2, "head", _GREY), (0.2, "tail", _COLOUR)):
        hits = [group[side]["hits_at_10"] for group in groups.values()]
        axis.bar(place + shift, hits, 0.38, color=colour, label=f"predicting {side}s")
    axis.set(xticks=place, ylabel=METRICS["hits_at_10"].label, ylim=(0, 1))
    axis.set_xticklabels([name.replace("-", "-to-") for name in groups])
    axis.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=2)
    return figure


def _pattern(kind: Kind, ids: tuple[int, ...], names: Mapping[int, str], vectors: Vectors) -> Any:
    """Draw a histogram of each relation's two vectors and of the residual, which peaks at 0 where the pattern holds."""
    figure, axes = _canvas(len(ids) + 1, 3, 2.6)
    for axis, relation in zip(axes, ids, strict=False):
        axis.hist([part[relation] for part in vectors], 40, histtype="stepfilled", alpha=0.6, color=[_COLOUR, _GREY])
        axis.set_title(_label(names[relation]), fontsize=8)
    x, y = (side[0] for side in products(vectors, kind, np.array([ids])))
    span = float(np.quantile(np.abs(x) + np.abs(y), 0.98)) or 1.0
    axes[-1].hist(np.clip(x - y, -span, span), 61, range=(-span, span), color=_COLOUR)
    axes[-1].set_title(FORMULAS[kind], fontsize=8)
    return figure


def _map(points: dict[str, Any]) -> Any:
    figure, (axis,) = _canvas(1, 6, 5)
    x, y = np.array(points["x"]), np.array(points["y"])
    types = np.array([-1 if t is None else t for t in points.get("type", [None] * len(x))])
    axis.scatter(x[types < 0], y[types < 0], 4, color=_COLOUR if "types" not in points else "#dfe3e8", linewidths=0)
    for number, name in enumerate(points.get("types", [])):
        axis.scatter(x[types == number], y[types == number], 5, label=_label(name), linewidths=0)
    if "types" in points:
        axis.legend(frameon=False, fontsize=7)
    axis.set_axis_off()
    return figure


def _label(name: str) -> str:
    """Return the beginning of a name as a label that matplotlib takes as it is, not as mathematics."""
    return visible(name[:40]).replace("$", "\\$")
