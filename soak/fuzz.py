"""Give every reader of the package damaged input, and keep what made one fail as a regression test.

A case may be refused with a PairREError; any other exception, a crash, more than 10 seconds or more than 1 GB is a
finding, which is written to `tests/fuzz/regressions/TARGET/` and replayed by `tests/fuzz/test_regressions.py`.

The engine `atheris` mutates examples guided by the coverage of the Python code (pip install 'pairre[soak]'). The engine
`mutate` is plain mutation by seed, needs nothing, and is the default where atheris is not installed.

    python -m soak.fuzz --cases 100000 [--target rdf] [--engine atheris|mutate] [--out FILE]
    python -m soak.fuzz --keep        also writes docs/results/soak-fuzz-DATE.json, or adds to it
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import logging
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pairre.support.errors import PairREError

ROOT = Path(__file__).parents[1]
REGRESSIONS = ROOT / "tests" / "fuzz" / "regressions"
SECONDS, MEMORY = 10, 1 << 30  # that one case may take
MAX_CASE = 1 << 16  # bytes of a mutated case
_CASES_OF_A_PROCESS, _MAX_CRASHES = 10_000, 20
_CURRENT, _REPORT = "current-case", "report.json"


# --- one case ---------------------------------------------------------------------------------------------------------


def run_case(name: str, data: bytes, folder: Path) -> BaseException | None:
    """Give a target one case; return the exception that it should not have raised, or None."""
    from soak.targets import targets

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        targets()[name].check(data, folder)
    except PairREError as error:
        if "\n" in str(error) or not str(error):
            return AssertionError(f"a message of {len(str(error).splitlines())} lines: {error}")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return error
    if (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 > MEMORY:
        return MemoryError(f"more than {MEMORY >> 30} GB")
    return None


def mutated(random_numbers: random.Random, seeds: tuple[bytes, ...], fragments: tuple[bytes, ...]) -> bytes:
    """Return a random change of a random example."""
    data = bytearray(random_numbers.choice(seeds))
    for _ in range(random_numbers.choice((1, 1, 2, 3, 5, 9))):
        start, length = random_numbers.randint(0, len(data)), random_numbers.choice((1, 1, 2, 4, 16, 64))
        kind = random_numbers.randrange(8)
        if kind == 0 and data:
            data[start % len(data)] ^= 1 << random_numbers.randrange(8)
        elif kind == 1:
            data[start : start + length] = random_numbers.randbytes(length)
        elif kind == 2:
            del data[start : start + length]
        elif kind == 3:
            data[start:start] = data[start : start + length] * random_numbers.choice((1, 2, 50))
        elif kind == 4:
            other = random_numbers.choice(seeds)
            data[start:] = other[random_numbers.randint(0, len(other)) :]
        elif kind == 5:
            del data[start:]
        elif fragments:
            data[start : start + random_numbers.choice((0, 0, length))] = random_numbers.choice(fragments)
    return bytes(data[:MAX_CASE])


def minimised(name: str, data: bytes, kind: type[BaseException], folder: Path, seconds: float = 10.0) -> bytes:
    """Return a shorter case that raises the same kind of exception, found by leaving out pieces for some seconds."""
    end, size = time.monotonic() + seconds, max(1, len(data) // 2)
    while size and time.monotonic() < end:
        start = 0
        while start < len(data) and time.monotonic() < end:
            shorter = data[:start] + data[start + size :]
            if type(run_case(name, shorter, folder)) is kind:
                data = shorter
            else:
                start += size
        size //= 2
    return data


def keep(name: str, data: bytes, reason: str, found: dict[str, str]) -> None:
    """Write a finding beside the tests, under the hash of its bytes."""
    file = REGRESSIONS / name / hashlib.sha256(data).hexdigest()[:16]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    found[str(file.relative_to(REGRESSIONS))] = reason


# --- a worker: many cases of one target -------------------------------------------------------------------------------


class Worker:
    """Counts the cases of one target in a process of its own, and keeps what failed."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.num_cases, self.slowest = 0, 0.0
        self.found: dict[str, str] = {}
        self.known: set[tuple[str, str]] = set()  # kinds of failure that have an example already
        self.written = time.monotonic()

    def case(self, data: bytes) -> None:
        """Run one case; its bytes are on disk before, so that they survive a crash."""
        (self.folder / _CURRENT).write_bytes(data)
        start = time.monotonic()
        failure = run_case(self.name, data, self.folder)
        seconds = time.monotonic() - start
        self.num_cases += 1
        self.slowest = max(self.slowest, seconds)
        if failure is not None:
            self._keep(data, failure)
        if time.monotonic() - self.written > 1:
            self.report()

    def _keep(self, data: bytes, failure: BaseException) -> None:
        last = failure.__traceback__
        while last and last.tb_next:
            last = last.tb_next
        where = f"{Path(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}" if last else ""
        if (type(failure).__name__, where) in self.known:
            return
        self.known.add((type(failure).__name__, where))
        shorter = minimised(self.name, data, type(failure), self.folder)
        keep(self.name, shorter, f"{type(failure).__name__} at {where}: {failure}"[:300], self.found)

    def report(self) -> None:
        """Write the counts, which the parent reads however this process ends."""
        values = {"cases": self.num_cases, "slowest_seconds": round(self.slowest, 2), "findings": self.found}
        (self.folder / _REPORT).write_text(json.dumps(values), encoding="utf-8")
        self.written = time.monotonic()


def work(name: str, num_cases: int, engine: str, seed: int, folder: Path) -> None:
    """Run cases in this process until there are enough."""
    logging.disable()
    if engine == "atheris":
        import atheris

        parts = (
            "graph",
            "rules",
            "settings",
            "support",
            "runs",
            "serve",
            "evaluation.calibration",
            "inference.search_state",
        )
        with atheris.instrument_imports(include=[f"pairre.{part}" for part in parts]):
            from soak.targets import targets
    else:
        from soak.targets import targets
    worker, target = Worker(name, folder), targets()[name]
    space = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (space + 4 * MEMORY, -1))
    if engine == "atheris":
        _with_atheris(worker, target, num_cases, seed, folder)
        return
    random_numbers = random.Random(f"{name}/{seed}")
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, and the parent sees which case it was
    for _ in range(num_cases):
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        worker.case(mutated(random_numbers, target.seeds, target.fragments))
    signal.setitimer(signal.ITIMER_REAL, 0)
    worker.report()


def _with_atheris(worker: Worker, target: Any, num_cases: int, seed: int, folder: Path) -> None:
    """Let libFuzzer choose the cases; it ends the process itself."""
    import atheris

    corpus, dictionary = folder / "corpus", folder / "dictionary"
    corpus.mkdir(exist_ok=True)
    for number, example in enumerate(target.seeds):
        (corpus / str(number)).write_bytes(example)
    words = ("".join(f"\\x{byte:02x}" for byte in fragment[:64]) for fragment in target.fragments)
    dictionary.write_text("".join(f'"{word}"\n' for word in words), encoding="ascii")

    def case(data: bytes) -> None:
        worker.case(data)
        if worker.num_cases >= num_cases:
            worker.report()

    options = [f"-runs={num_cases}", f"-seed={seed + 1}", f"-timeout={SECONDS}", f"-max_len={MAX_CASE}"]
    options += ["-rss_limit_mb=0", "-verbosity=0", f"-dict={dictionary}", f"-artifact_prefix={folder}/", str(corpus)]
    atheris.Setup([sys.argv[0], *options], case)
    atheris.Fuzz()


# --- the run ----------------------------------------------------------------------------------------------------------


def fuzz(name: str, num_cases: int, engine: str, seed: int = 0) -> dict[str, Any]:
    """Run one target in processes of their own, and return its counts.

    A new process begins after each crash, and after some thousands of cases, because what a library leaks when it
    refuses a file (pyarrow: the decoder of a damaged zstd stream) would add up to a shortage that no case causes.
    """
    total: dict[str, Any] = {"cases": 0, "engine": engine, "slowest_seconds": 0.0, "findings": {}}
    start = time.monotonic()
    number = crashes = 0
    while total["cases"] < num_cases and crashes < _MAX_CRASHES:
        number += 1
        with tempfile.TemporaryDirectory(prefix="pairre-fuzz-", dir=_scratch()) as scratch:
            cases = min(num_cases - total["cases"], _CASES_OF_A_PROCESS)
            job = [name, str(cases), engine, str(seed + number), scratch]
            done = subprocess.run(
                [sys.executable, "-m", "soak.fuzz", "--worker", *job], cwd=ROOT, capture_output=True, check=False
            )
            counted = _read(Path(scratch) / _REPORT)
            crashes += not counted.get("cases")
            total["cases"] += counted.get("cases", 0)
            total["slowest_seconds"] = max(total["slowest_seconds"], counted.get("slowest_seconds", 0.0))
            total["findings"] |= counted.get("findings", {})
            current = Path(scratch) / _CURRENT
            if done.returncode and current.exists():
                reason = "a timeout" if done.returncode in (-signal.SIGALRM, 70) else f"exit code {done.returncode}"
                total["cases"] += 1
                crashes += 1
                keep(
                    name,
                    current.read_bytes(),
                    f"{reason}: {done.stderr[-200:].decode(errors='replace')}",
                    total["findings"],
                )
            elif done.returncode:
                sys.exit(f"{name}: the worker does not start:\n{done.stderr.decode(errors='replace')[-2000:]}")
    return {**total, "seconds": round(time.monotonic() - start, 1)}


def _sum(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the counts of two rounds of one target."""
    return {
        **other,
        "cases": one["cases"] + other["cases"],
        "slowest_seconds": max(one["slowest_seconds"], other["slowest_seconds"]),
        "findings": one["findings"] | other["findings"],
        "seconds": round(one["seconds"] + other["seconds"], 1),
    }


def _scratch() -> str | None:
    """Return a folder in memory if there is one, because every case is a file."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _read(file: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(file.read_text(encoding="utf-8")))
    return {}


def main() -> None:
    """Run the targets that the command line names, and write the counts after each."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000, help="cases of each target")
    parser.add_argument("--target", action="append", help="targets whose names begin with this; repeatable, else all")
    parser.add_argument("--engine", choices=("atheris", "mutate"), help="else atheris if it is installed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write counts by target, added to those that the file has, as JSON")
    parser.add_argument("--keep", action="store_true", help="add the counts to docs/results/soak-fuzz-DATE.json")
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        name, num_cases, engine, seed, folder = arguments.worker
        work(name, int(num_cases), engine, int(seed), Path(folder))
        return
    from benchmarks.machine import RESULTS, describe
    from soak.targets import targets

    engine = arguments.engine or ("atheris" if importlib.util.find_spec("atheris") else "mutate")
    wanted = [name for name in targets() if name.startswith(tuple(arguments.target or ("",)))]
    described = describe()
    if arguments.keep:
        arguments.out = RESULTS / f"soak-fuzz-{described['date']}.json"
    kept = _read(arguments.out) if arguments.out else {}
    lines = {line["target"]: line for line in kept.get("targets", [])}
    for name in wanted:
        line = {"target": name, **fuzz(name, arguments.cases, engine, arguments.seed)}
        lines[name] = _sum(lines[name], line) if name in lines else line
        print(
            f"{name:32} {line['cases']:>9,} cases  {len(line['findings'])} findings  {line['seconds']:.0f} s",
            flush=True,
        )
        if arguments.out:
            result = {
                "question": __doc__.splitlines()[0],
                "machine": described,
                "cases": sum(line["cases"] for line in lines.values()),
                "findings": sum(len(line["findings"]) for line in lines.values()),
                "targets": list(lines.values()),
            }
            arguments.out.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(1 if any(line["findings"] for line in lines.values()) else 0)


if __name__ == "__main__":
    main()
