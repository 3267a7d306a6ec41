"""Lay out the tables of experiments as cells and as Markdown, for the terminal, files and docs/reproduction.md."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pairre.evaluation import METRICS

_SIZES = ("relations", "entities", "train", "valid", "test")
HEADER = ("", "", "ours", "paper", "difference", "a seed", "device")


def cells(result: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield one row for each trial and metric, with the columns of `HEADER`; `result` is `Reproduced.as_dict()`."""
    for row in result["rows"]:
        for i, (metric, values) in enumerate(row["metrics"].items()):
            published, deviation = values["published"]
            seconds = row["seconds"]
            yield (
                row["label"] if i == 0 else "",
                label(metric),
                _figure(metric, values["mean"], values["std"]) + _seeds(values["values"]),
                "" if published is None else _figure(metric, published, deviation),
                "" if published is None else _difference(metric, values),
                "" if i or seconds is None else f"{seconds:.0f} s",
                "" if i else row["device"],
            )


def label(metric: str) -> str:
    """Return the label of a metric, or the name itself of a value that is no metric, such as a category."""
    return METRICS[metric].label if metric in METRICS else metric


def _figure(metric: str, value: float, deviation: float | None) -> str:
    if metric in _SIZES or (value >= 1000 and value == int(value)):
        return f"{int(value):,}"
    digits = METRICS[metric].digits if metric in METRICS else 0 if value > 2 else 4
    return f"{value:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")


def _seeds(values: Sequence[float]) -> str:
    return f" ({len(values)} seeds)" if len(values) > 1 else ""


def beyond(values: Mapping[str, Any]) -> bool:
    """Return whether our mean differs from the published one by more than two combined standard deviations."""
    published, deviation = values["published"]
    known = [spread for spread in (values["std"], deviation) if spread is not None]
    return published is not None and bool(known) and abs(values["mean"] - published) > 2 * math.hypot(*known)


def _difference(metric: str, values: Mapping[str, Any]) -> str:
    """Return the difference, with a star where it is `beyond` two standard deviations."""
    gap = values["mean"] - values["published"][0]
    sign = "+" if gap >= 0 else "−"
    return f"{sign}{_figure(metric, abs(gap), None)}{' *' if beyond(values) else ''}"


def markdown(result: Mapping[str, Any]) -> str:
    """Return a table as Markdown, with its title and remark."""
    lines = [f"## {result['title']}", ""]
    lines += ["| " + " | ".join(row) + " |" for row in (HEADER, ["---"] * len(HEADER), *cells(result))]
    if any("*" in row[4] for row in cells(result)):
        lines += ["", "\\* beyond two standard deviations of the two together"]
    if result["remark"]:
        lines += ["", result["remark"]]
    return "\n".join(lines) + "\n"
