"""The command `check`."""

from __future__ import annotations

from pairre.cli import tables
from pairre.cli.console import err, out
from pairre.cli.options import RunArgument
from pairre.support.errors import PairREError


def command(run: RunArgument) -> None:
    """Check every file of a run folder against its checksum, and say what is wrong.

    The exit code is 0 if everything is as it was written, else 2.

    Example:

        pairre check runs/atlas
    """
    from pairre.runs import check_run

    with err.status("checking"):
        reports = check_run(run)
    out.print(tables.files_table(run, reports))
    if faulty := [report.name for report in reports if report.fault]:
        raise PairREError(f"{run}: {len(faulty)} of {len(reports)} files are not as they should be")
