"""The report: one page about a run, which opens offline, and its figures as files."""

from __future__ import annotations

from pathlib import Path

from pairre.analysis.patterns import paired_vectors
from pairre.analysis.report.collect import Notify, collect
from pairre.analysis.report.entities import Method, check_method
from pairre.analysis.report.figures import check_matplotlib, write_figures
from pairre.analysis.report.page import page
from pairre.graph import Split
from pairre.runs import Run
from pairre.support.errors import PairREError
from pairre.support.files import check_new_file, disk_error, write_text

__all__ = ["Method", "Notify", "check_paths", "write_report"]


def check_paths(out: Path, figures: Path | None, force: bool) -> None:
    """Refuse, before any work, what could not be written at its end."""
    check_new_file(out, force=force)
    try:
        if figures is not None and figures.exists() and not figures.is_dir():
            raise PairREError(f"{figures}: not a folder; --figures writes several files")
        for file in sorted([*figures.glob("*.png"), *figures.glob("*.svg")]) if figures is not None else ():
            check_new_file(file, force=force)
    except OSError as error:
        raise disk_error(figures or out, error) from error


def write_report(
    run: Run,
    out: str | Path,
    *,
    split: Split = "test",
    figures: str | Path | None = None,
    method: Method = "pca",
    force: bool = False,
    notify: Notify = lambda _what, _share: None,
) -> list[Path]:
    """Write the report of a run and, into the folder `figures`, its figures; return every file written.

    A split without triples is left out, and the page says so. `method` lays out the map of entities; `tsne` needs
    scikit-learn. `notify` is told what goes on and the share of it that is done.
    """
    out, folder = Path(out), None if figures is None else Path(figures)
    check_paths(out, folder, force)
    check_method(method)
    if folder is not None:
        check_matplotlib()
    values = collect(run, split, method, notify)
    notify("writing", 0)
    write_text(out, page(values))
    return [out, *(write_figures(values, paired_vectors(run.model), folder) if folder is not None else [])]
