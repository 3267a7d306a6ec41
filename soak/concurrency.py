"""Many at once: trainings into one folder and into many, readers beside a writer, forks and threads of one run.

    python -m soak.concurrency            prints the counts
    python -m soak.concurrency --keep     also writes docs/results/soak-concurrency-DATE.json

Nothing may be disturbed, and where one must lose it gets one clear line.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from soak.crash import FLAGS, _write_graph


def main() -> None:
    """Run every proof and print or keep the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer of everything")
    parser.add_argument("--keep", action="store_true", help="write docs/results/soak-concurrency-DATE.json")
    arguments = parser.parse_args()
    few = arguments.quick
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        _write_graph(base / "ring")
        result = {
            "pairs_into_one_folder": into_one_folder(base, 2 if few else 20),
            "into_separate_folders": into_separate_folders(base, 4 if few else 24),
            "reads_beside_a_writer": beside_a_writer(base, 1 if few else 20),
            "forks_and_threads": forks_and_threads(base, 4 if few else 16),
        }
    print(json.dumps(result, indent=2))
    if arguments.keep:
        from benchmarks.machine import RESULTS, describe

        path = RESULTS / f"soak-concurrency-{describe()['date']}.json"
        path.write_text(json.dumps({"machine": describe(), **result}, indent=2) + "\n", encoding="utf-8")


def _train(base: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pairre", "train", str(base / "ring"), "--out", str(out), "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *FLAGS, *more], env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def _bits(path: Path) -> str:
    """Return a hash of the weights of a run, after its checksums were compared."""
    import pairre

    digest = hashlib.sha256()
    for name, tensor in pairre.load_run(path, "cpu").model.state_dict().items():
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def into_one_folder(base: Path, rounds: int) -> dict[str, int]:
    """Start two trainings into one folder: one trains, the other gets one line; the run is as if it had been alone."""
    import pairre

    counts = {"rounds": rounds, "refused": 0}
    for number in range(rounds):
        out = base / "one" / str(number)
        processes = [_train(base, out), _train(base, out)]
        said = [process.communicate(timeout=300)[1] for process in processes]
        codes = sorted(process.returncode for process in processes)
        assert codes == [0, 2], (codes, said)
        lost = said[[process.returncode for process in processes].index(2)]
        assert "Traceback" not in lost, lost
        assert sum(line.startswith("pairre: ") for line in lost.splitlines()) == 1, lost
        assert not [report for report in pairre.check_run(out) if report.fault]
        assert not list(out.parent.glob(".*"))
        counts["refused"] += 1
    return counts


def into_separate_folders(base: Path, number: int) -> dict[str, int]:
    """Train many at once, each into a folder of its own: all end in the same bits."""
    processes = [_train(base, base / "many" / str(i)) for i in range(number)]
    said = [process.communicate(timeout=1200)[1] for process in processes]
    assert all(process.returncode == 0 for process in processes), said
    assert len({_bits(base / "many" / str(i)) for i in range(number)}) == 1
    return {"trainings": number}


def beside_a_writer(base: Path, seconds: float) -> dict[str, int]:
    """Open a run again and again while it is trained, with a validation after every step."""
    import pairre

    out, reads, different = base / "read", 0, set()
    writer = _train(
        base, out, "--set", "train.steps=1000000", "--set", "train.validate_every=1", "--set", "train.patience=0"
    )
    try:
        while not (out / "model.safetensors").exists():
            assert writer.poll() is None, writer.communicate()[1]
            time.sleep(0.05)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            different.add(_bits(out))
            pairre.load_graph(out / "graph")
            reads += 1
    finally:
        writer.kill()
        writer.communicate()
    return {"reads": reads, "different_weights_seen": len(different)}


def _answers(run: Any) -> str:
    import pairre

    found = [pairre.evaluate(run)["both"], [p.tail for p in pairre.predict(run, head="e1", relation="next")]]
    return json.dumps(found)


def forks_and_threads(base: Path, number: int) -> dict[str, int]:
    """Evaluate and query one run in threads, in forked processes, and in threads of forked processes."""
    import pairre

    run = pairre.load_run(base / "many" / "0", "cpu")
    expected = _answers(run)
    with ThreadPoolExecutor(number) as threads:
        assert set(threads.map(_answers, [run] * 4 * number)) == {expected}
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        assert set(pool.map(_answers, [run] * number)) == {expected}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert set(pool.map(_answers, [run] * 4)) == {expected}
    return {"threads": number, "forked_calls": number, "spawned_calls": 4}


if __name__ == "__main__":
    main()
