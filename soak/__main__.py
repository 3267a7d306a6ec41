"""Run every proof one after another, or a share of each.

    python -m soak                  all of it: hours; counts go to docs/results/
    python -m soak --share 0.001    a thousandth of the cases: minutes; counts are printed only

The exit code is 0 if nothing was found. An audit that could not look everything up is said, and is no failure.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time

from soak.audit import NOT_LOOKED_UP


def main() -> None:
    """Run the proofs, say what each took, and exit with 1 if one failed."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the cases, above 0 and at most 1")
    share = parser.parse_args().share
    if not 0 < share <= 1:
        parser.error("--share: above 0 and at most 1")
    failed = []
    for name, *options in commands(share):
        start = time.monotonic()
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        code = subprocess.run([sys.executable, "-m", f"soak.{name}", *options], env=environment, check=False).returncode
        failed += [name] * (code not in (0, NOT_LOOKED_UP))
        print(f"--- soak.{name} took {time.monotonic() - start:.0f} s and ended with code {code}", flush=True)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def commands(share: float) -> list[list[str]]:
    """Return the modules and their options for a share of the cases; only the whole is kept."""
    whole = share == 1
    keep = ["--keep"] * whole

    def part(number: int) -> str:
        return str(math.ceil(share * number))

    return [
        ["crash", "--every", str(math.ceil(1 / share)), "--random", part(40), *keep],
        ["fuzz", "--cases", part(30_000), *keep],
        ["numbers", "--graphs", part(6), *([] if whole else ["--trained"]), *keep],
        ["concurrency", *([] if whole else ["--quick"]), *keep],
        ["processes", "--cases", part(10), *keep],
        ["threads", *([] if whole else ["--model", "pairre"]), *keep],
        ["audit"],
    ]


if __name__ == "__main__":
    main()
