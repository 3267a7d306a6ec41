"""What a figure was measured on, and how: fresh processes one after another, peak memory, JSON for docs/results/.

Nothing heavy is imported at the top, so that a worker can set up its process (allocator, threads) before torch loads.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
_MARK = "RESULT "


def describe() -> dict[str, Any]:
    """Processor, memory, versions, date, and how busy the machine was."""
    from pairre.runs import versions

    return {
        "date": datetime.date.today().isoformat(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        "load_average_at_start": [round(x, 2) for x in os.getloadavg()],
        "versions": {**versions(), **_versions_of("pykeen", "triton")},
    }


def _versions_of(*packages: str) -> dict[str, str]:
    """Versions of those that are installed."""
    installed = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package)
    return installed


def _cpu_model() -> str:
    """Return the processor's name with the widest vector unit it has; clouds often hide the rest."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    vectors = next((flag for flag in ("avx512f", "avx2", "asimd") if re.search(rf"\b{flag}\b", text)), "")
    return " ".join(filter(None, [name[1] if name else platform.machine(), vectors]))


def peak_memory_gb() -> float:
    """Return the most memory this process has held. VmHWM starts at exec; `ru_maxrss` would count the parent's too."""
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    kilobytes = int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes * 1024 / 1e9


def fresh_process(script: str, job: dict[str, Any]) -> dict[str, Any]:
    """Run `script --worker JOB` in a process of its own and return what it answered."""
    command = [sys.executable, script, "--worker", json.dumps(job)]
    # PyKEEN makes a folder in the home directory unless it is told where.
    scratch = {"PYSTOW_HOME": str(Path(tempfile.gettempdir()) / "pairre-benchmarks" / "pystow")}
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env={**scratch, **os.environ}, check=False)
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode or not answers:
        sys.exit(f"worker {job} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    answer: dict[str, Any] = json.loads(answers[-1].removeprefix(_MARK))
    return {**answer, "process_seconds": round(time.perf_counter() - started, 2)}


def answer(result: dict[str, Any]) -> None:
    """Print what a worker says to the process that started it."""
    print(_MARK + json.dumps({**result, "peak_memory_gb": round(peak_memory_gb(), 3)}))


def options(description: str) -> argparse.ArgumentParser:
    """Return the command line that the benchmarks share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: fewer steps and triples, one round")
    parser.add_argument("--rounds", type=int, default=0, help="interleaved rounds, the median is kept (default 3)")
    parser.add_argument("--keep", action="store_true", help="write docs/results/NAME-DATE.json")
    parser.add_argument("--json", type=Path, help="write the result to this file instead")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser


def write(name: str, result: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Keep a result where the command line asked for it; a quick run never ends in docs/results/."""
    path: Path | None = arguments.json
    if path is None and arguments.keep:
        if arguments.quick:
            sys.exit("--quick figures are not kept: drop --keep, or give --json FILE")
        path = RESULTS / f"{name}-{result['machine']['date']}.json"
    if path is None:
        print("not written: --keep writes docs/results/, --json FILE anywhere else")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {path}")
