"""Crash every command that writes, at every file operation and at random moments, and see that nothing is lost.

    python -m soak.crash                      every operation, every fault
    python -m soak.crash --every 25           every 25th operation only
    python -m soak.crash --keep               also write docs/results/soak-crash-DATE.json, or add to it

A case forks a process that runs one command with one fault: it is killed before the N-th file operation, or that
operation fails with "no space left", "input/output error" or "read-only file system", or it is killed at a random
moment. Then three things must hold. The process was killed or ended with one line, not with a traceback. Every run
folder is absent, or opens and passes its checksums. The same command, repeated as the message says, succeeds and ends
in the very bits of an undisturbed one, with no temporary file left. (`soak.processes` kills ranks of `--nproc`.)
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FAULTS = {"kill": 0, "no space": errno.ENOSPC, "input/output error": errno.EIO, "read-only": errno.EROFS}
SETTINGS = {
    **{"model.dim": 8, "train.batch": 32, "train.steps": 24, "train.validate_every": 8},
    **{"train.checkpoint_seconds": 0.02, "sampling.negatives": 8, "train.lr": 0.01},
}
FLAGS = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]


@dataclass
class Scenario:
    """A command that writes into the folder `out`."""

    name: str
    arguments: Callable[[Path], list[str]]  # of the command, given `out`
    state: Callable[[Path], Any]  # what must be the same in the end
    check: Callable[[Path], None] = lambda _: None  # what must hold after a fault
    num_operations: int = 0
    expected: Any = None
    counts: Counter[str] = field(default_factory=Counter)


def main() -> None:
    """Run the cases and print or keep the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--every", type=int, default=1, help="take every N-th file operation (default: all)")
    parser.add_argument("--random", type=int, default=40, help="kills at random moments, for each command")
    parser.add_argument("--only", nargs="*", help="these commands only")
    parser.add_argument("--keep", action="store_true", help="write docs/results/soak-crash-DATE.json")
    parser.add_argument("--json", type=Path, help="write the counts to this file, added to those that it has")
    arguments = parser.parse_args()
    if "pairre_faults" not in os.environ.get("LD_PRELOAD", ""):
        _restart_preloaded()
    Path(os.environ.pop("LD_PRELOAD")).unlink()  # it is loaded
    from benchmarks.machine import RESULTS, describe

    path = arguments.json
    if arguments.keep:
        path = RESULTS / f"soak-crash-{describe()['date']}.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path and path.exists() else {}
    result = {"cases": 0, "commands": {}, "failures": [], **before, "machine": describe()}
    for name, counts, failures in run(arguments.every, arguments.random, arguments.only):
        result["cases"] += counts["cases"]
        result["commands"][name] = Counter(result["commands"].get(name, {})) + counts
        result["failures"] += failures
        if path:
            path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        print(f"{name}: {counts['cases']} cases, {len(failures)} failures; {result['cases']} cases so far", flush=True)
    if result["failures"]:
        sys.exit(f"{len(result['failures'])} of {result['cases']} cases failed; the first: {result['failures'][0]}")


def _restart_preloaded() -> None:
    """Compile the fault-injecting library and start this program again with it."""
    library = Path(tempfile.gettempdir()) / f"pairre_faults_{os.getpid()}.so"
    compiler = shutil.which("cc") or sys.exit("a C compiler is needed: cc")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "faults.c", "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
    os.execve(sys.executable, [sys.executable, "-m", "soak.crash", *sys.argv[1:]], environment)


def run(every: int, num_random: int, only: list[str] | None) -> Iterator[tuple[str, Counter[str], list[str]]]:
    """Yield the name of each command with the counts of its cases, and a line for each failure."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder).resolve()
        scenarios = [s for s in _scenarios(base) if not only or s.name in only]
        started = time.monotonic()
        for scenario in scenarios:
            failures: list[str] = []
            _run_undisturbed(scenario, base / "out")
            print(f"{scenario.name}: {scenario.num_operations} file operations", flush=True)
            for number, (fault, at) in enumerate(_cases(scenario, every, num_random)):
                try:
                    _run_case(scenario, base / "out", fault, at)
                except AssertionError as failure:
                    failures.append(f"{scenario.name}, {fault} at {at}: {failure}")
                    print(failures[-1], flush=True)
                if number % 100 == 99:
                    seconds = time.monotonic() - started
                    print(f"{scenario.name}: {number + 1} cases, {seconds:.0f} s", flush=True)
            del scenario.counts["milliseconds"]
            yield scenario.name, scenario.counts, failures


def _cases(scenario: Scenario, every: int, num_random: int) -> Iterator[tuple[str, float]]:
    for fault in FAULTS:
        for at in range(1, scenario.num_operations + 1, every):
            yield fault, at
    moments = random.Random(0)
    for _ in range(num_random):
        yield "random kill", moments.uniform(0, scenario.counts["milliseconds"] / 1000)


def _run_undisturbed(scenario: Scenario, out: Path) -> None:
    """Learn what the end must be, and how many file operations lead to it."""
    _empty(out)
    started = time.monotonic()
    code, said = _fork(scenario.arguments(out), out, 0, 0)
    scenario.counts["milliseconds"] = round(1000 * (time.monotonic() - started))
    assert code == 0, said
    scenario.num_operations = int((out.parent / "count").read_text())
    scenario.expected = scenario.state(out)
    assert not _left_behind(out)


def _run_case(scenario: Scenario, out: Path, fault: str, at: float) -> None:
    _empty(out)
    scenario.counts["cases"] += 1
    if fault == "random kill":
        code, said = _fork(scenario.arguments(out), out, 0, 0, kill_after=at)
    else:
        code, said = _fork(scenario.arguments(out), out, int(at), FAULTS[fault])
    _check_end(code, said)
    scenario.counts[f"{fault}: {'ended well' if code == 0 else 'killed' if code < 0 else 'one line'}"] += 1
    scenario.check(out)
    arguments = scenario.arguments(out)
    code, said = _fork(arguments, out, 0, 0)
    if code == 2 and "--resume" in said:
        code, said = _fork([*arguments, "--resume"], out, 0, 0)
    if code == 2 and ("--force" in said or "exists; choose another" in said):
        code = 0  # it is there, so it must be whole, which the state shows
    assert code == 0, f"repeated: {said}"
    assert scenario.state(out) == scenario.expected, "another end than undisturbed"
    left = _left_behind(out)
    assert not left, f"left behind: {left}"


def _left_behind(out: Path) -> list[str]:
    """Return the temporary files below a folder: ours, and those of the library that writes tensors."""
    found = (*out.rglob(".*.part"), *out.rglob(".tmp*"))
    return [str(path.relative_to(out)) for path in found]


def _check_end(code: int, said: str) -> None:
    lines = [line for line in said.splitlines() if line.startswith("pairre: ")]
    assert "Traceback" not in said, said
    assert code in (0, -signal.SIGKILL) or (code == 2 and len(lines) == 1), f"exit code {code}: {said}"


def _empty(out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()


def _fork(arguments: list[str], out: Path, at: int, error: int, kill_after: float | None = None) -> tuple[int, str]:
    """Run a command in a forked process with a fault; return its exit code (or minus the signal) and what it said."""
    said = out.parent / "said"
    child = os.fork()
    if child == 0:
        code = 70
        try:
            target = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(target, 1)
            os.dup2(target, 2)
            code = _call(arguments, out, at, error)
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:  # noqa: BLE001 (whatever it is, the parent must hear of it)
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(code)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said.read_text(encoding="utf-8", errors="replace")


def _call(arguments: list[str], out: Path, at: int, error: int) -> int:
    faults = ctypes.CDLL(None)
    faults.fault_arm(os.fsencode(out), ctypes.c_long(at), error)
    try:
        sys.modules["pairre.cli"].main(arguments)
    except SystemExit as end:
        code = end.code
    else:
        code = 0
    count = ctypes.c_long(faults.fault_count()).value
    faults.fault_arm(b"", ctypes.c_long(0), 0)
    (out.parent / "count").write_text(str(count))
    return int(code or 0)


# --- the commands ---


def _scenarios(base: Path) -> list[Scenario]:
    """Return every command that writes, on a tiny graph; what they read is made here."""
    import pairre
    import pairre.cli  # before the forks, so that each has it

    graph = base / "ring"
    _write_graph(graph)
    os.environ["PAIRRE_DATA"] = str(_write_benchmark(base))
    members = [base / f"member-{seed}" for seed in range(2)]
    for seed, path in enumerate(members):
        overrides = [f"{key}={value}" for key, value in SETTINGS.items()]
        pairre.train(graph, overrides=[*overrides, f"train.seed={seed}"], out=path, progress=False, device="cpu")
    space = base / "space.toml"
    space.write_text("[train]\nlr = {low = 1e-3, high = 0.1, log = true}\n")
    train = ["train", str(graph), *FLAGS, "--device", "cpu"]
    old = HERE.parent / "tests" / "runs" / "format-1"
    names = [str(member) for member in members]
    (base / "ring.tsv").write_text((graph / "train.tsv").read_text())
    one_more = [str(_other_member(graph, base)), "--device", "cpu"]
    return [
        Scenario("train", lambda out: [*train, "--out", f"{out}/run"], _weights, _check_runs),
        Scenario("train --seeds", lambda out: [*train, "--seeds", "2", "--out", f"{out}/s"], _weights, _check_runs),
        Scenario(
            "train --tensorboard",
            lambda out: [*train, "--tensorboard", "--out", f"{out}/run"],
            _weights,
            _check_runs,
        ),
        Scenario(  # how far a trial gets depends on the time, and so does what is kept
            "train --effort",
            lambda out: [*("train", str(graph), "--effort", "quick", "--time", "10s"), "--out", f"{out}/run"],
            lambda out: sorted(path.name for path in out.iterdir()),
            _check_runs,
        ),
        Scenario("merge", lambda out: ["merge", *names, "--out", f"{out}/merged"], _weights, _check_runs),
        Scenario(
            "migrate (saves a run)", lambda out: ["migrate", str(old), "--out", f"{out}/r"], _weights, _check_runs
        ),
        Scenario(
            "tune",
            lambda out: [
                *("tune", str(graph), *FLAGS[:-2], "--device", "cpu", "--out", f"{out}/study"),
                *("--trials", "2", "--space", str(space)),
            ],
            lambda out: (out / "study" / "best.toml").read_text(),
        ),
        Scenario(
            "reproduce",
            lambda out: [*("reproduce", "sports", "--seeds", "1", *FLAGS, "--device", "cpu", "--out", f"{out}/r")],
            _weights,
            _check_runs,
        ),
        Scenario("ensemble", lambda out: ["ensemble", *names, *one_more, "--out", f"{out}/r"], _weights, _check_runs),
        Scenario(
            "ingest",
            lambda out: ["ingest", f"{base}/ring.tsv", "--out", f"{out}/graph", "--memory", "500MB"],
            _stored_graph,
            _check_stored_graph,
        ),
        Scenario(
            "rules mine",
            lambda out: ["rules", "mine", str(graph), "--min-support", "2", "--out", f"{out}/rules.tsv"],
            lambda out: (out / "rules.tsv").read_text(),
        ),
        Scenario(
            "evaluate --json",
            lambda out: ["evaluate", names[0], "--device", "cpu", "--json", f"{out}/metrics.json"],
            lambda out: (out / "metrics.json").read_text(),
        ),
    ]


def _write_graph(folder: Path) -> None:
    """Write a ring of entities with three relations as a folder of splits."""
    rows = []
    for i in range(40):
        one, other = f"e{i}", f"e{(i + 1) % 40}"
        rows += [(one, "next", other), (other, "previous", one), (one, "beside", other), (other, "beside", one)]
    random.Random(0).shuffle(rows)
    folder.mkdir(parents=True)
    for split, part in (("valid", rows[:16]), ("test", rows[16:32]), ("train", rows[32:])):
        (folder / f"{split}.tsv").write_text("".join("\t".join(row) + "\n" for row in part))


def _write_benchmark(base: Path) -> Path:
    """Write a tiny graph under the name of a public one, with the relations that its rules are about."""
    from pairre.studies.reproduce.run import _SPORTS

    folder = base / "data"
    _write_graph(folder / "sports")
    names = [*_SPORTS[0].body, _SPORTS[0].conclusion, *_SPORTS[1].body, _SPORTS[1].conclusion]
    with (folder / "sports" / "train.tsv").open("a") as file:
        file.writelines(f"e{i}\t{name}\te{i + 3}\n" for i, name in enumerate(names))
    return folder


def _other_member(graph: Path, base: Path) -> Path:
    """Train a run of another model, so that an ensemble has members instead of becoming one run of PairRE."""
    import pairre

    path = base / "member-distmult"
    overrides = [f"{key}={value}" for key, value in (SETTINGS | {"model.name": "distmult"}).items()]
    pairre.train(graph, overrides=overrides, out=path, progress=False, device="cpu")
    return path


def _stored_graph(out: Path) -> dict[str, str]:
    """Return a hash of every array of a graph on disk; its description has the time."""
    files = sorted((out / "graph").glob("*.npy"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _check_stored_graph(out: Path) -> None:
    """Raise AssertionError unless the graph is absent, or opens and passes its checksums."""
    from pairre.graph.stored.load import load_stored
    from pairre.support.errors import PairREError

    if (out / "graph").exists():
        try:
            load_stored(out / "graph", verify=True)
        except PairREError as error:
            raise AssertionError(str(error)) from error


def _runs(out: Path) -> list[Path]:
    return sorted(
        file.parent for file in out.rglob("run.json") if not any(p.name.endswith(".part") for p in file.parents)
    )


def _weights(out: Path) -> dict[str, Any]:
    """Return a hash of the weights of every run, and its metrics."""
    import pairre

    states = {}
    for path in _runs(out):
        run = pairre.load_run(path, "cpu")
        digest = hashlib.sha256()
        for name, tensor in run.model.state_dict().items():
            digest.update(name.encode() + tensor.numpy().tobytes())
        metrics = path / "metrics.json"
        losses = [entry["loss"] for entry in run.history if "loss" in entry]
        states[str(path.relative_to(out))] = (digest.hexdigest(), metrics.exists() and metrics.read_text(), losses)
    return states


def _check_runs(out: Path) -> None:
    """Raise AssertionError unless every run folder opens and passes its checks; unfinished ones have another name."""
    import pairre

    for path in _runs(out):
        faults = [report for report in pairre.check_run(path) if report.fault]
        assert not faults, faults


if __name__ == "__main__":
    main()
