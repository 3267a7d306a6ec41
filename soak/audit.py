"""Look the pinned packages up in the database of known vulnerabilities with pip-audit, where the network permits it.

python -m soak.audit

The exit code is 0 if every package was looked up and none has a known vulnerability, 1 if one has, and 3 if some or all
could not be looked up: "no known vulnerabilities" means nothing for those.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
NOTHING_KNOWN, VULNERABLE, NOT_LOOKED_UP = 0, 1, 3
_NAMED = 10  # packages in a line


def main() -> None:
    """Print what pip-audit finds and exit with the code that says it."""
    options = ["--no-deps", "--disable-pip", "--timeout", "15", "--progress-spinner", "off", "--format", "json"]
    command = [sys.executable, "-m", "pip_audit", *options, "-r", str(CONSTRAINTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    code, lines = judge(done.stdout, done.stderr, pinned())
    print(*lines, sep="\n")
    sys.exit(code)


def pinned() -> set[str]:
    """Return the names of all packages that are pinned."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    return {_normal(line.partition("==")[0]) for line in lines if "==" in line and not line.startswith("#")}


def judge(output: str, errors: str, expected: set[str]) -> tuple[int, list[str]]:
    """Return the exit code and the lines to print for what pip-audit printed, given the packages that it should know.

    A package that it skipped, or does not mention, was not looked up.
    """
    try:
        packages = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        reason = (errors.strip().splitlines() or ["no output"])[-1]
        return NOT_LOOKED_UP, [f"Nothing was looked up, because pip-audit failed: {reason}"]
    looked_up = {_normal(package["name"]) for package in packages if "vulns" in package}
    found = [(package, vulnerability) for package in packages for vulnerability in package.get("vulns", ())]
    lines = [
        f"{package['name']} {package['version']}: {vulnerability['id']}, fixed in "
        f"{', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        for package, vulnerability in found
    ]
    lines.append(f"{len(found)} known vulnerabilities in the {len(looked_up)} of {len(expected)} packages looked up.")
    missing = sorted(expected - looked_up)
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        lines.append(f"Not looked up: {', '.join(missing[:_NAMED])}{more}.")
    return (VULNERABLE if found else NOT_LOOKED_UP if missing else NOTHING_KNOWN), lines


def _normal(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(".", "-")


if __name__ == "__main__":
    main()
