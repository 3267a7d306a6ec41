"""An ingest that is killed leaves nothing that is taken for a graph, and the same command takes over."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pairre
from pairre.support.memory import parse_bytes

pytest.importorskip("duckdb")
NUM = 200_000


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "t.tsv"
    path.write_text("".join(f"e{i * 7919 % 30011}\tr{i % 50}\te{i * 104729 % 29989}\n" for i in range(NUM)))
    return path


def start(source, out, *options):
    command = [sys.executable, "-m", "pairre", "ingest", source, "--out", out, *options]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(folder, name, process):
    """Wait until the unfinished graph beside a folder has a file of some name."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if list(folder.parent.glob(f".{folder.name}.*.part/{name}")):
            return
        assert process.poll() is None, f"it ended before there was {name}: {process.communicate()}"
        time.sleep(0.002)
    raise AssertionError(f"{name} was never there")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["work/work.duckdb", "entities-text.npy", "work/heads-0"])
def test_the_same_command_takes_over_from_a_killed_one(source, tmp_path, name):
    out = tmp_path / "graph"
    process = start(source, out)
    wait_for(out, name, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not out.exists()
    assert [path.name.endswith(".part") for path in tmp_path.iterdir()] == [True]
    again = start(source, out)
    printed = again.communicate()
    assert again.returncode == 0, printed
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]
    assert len(pairre.load_graph(out).train) > 0.8 * NUM


@pytest.mark.slow
def test_an_interrupted_one_leaves_nothing(source, tmp_path):
    process = start(source, tmp_path / "graph")
    wait_for(tmp_path / "graph", "work/work.duckdb", process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert [path.name for path in tmp_path.iterdir()] == []


@pytest.mark.slow
def test_memory_stays_within_what_was_asked_for(source, tmp_path):
    """Ten times the file: names, keys and index would not fit beside Python and its packages."""
    large, lines = tmp_path / "large.tsv", source.read_text().splitlines()
    with large.open("w") as file:
        for copy in range(10):
            file.writelines(
                f"http://example.org/entity/{copy}/{head}\t{relation}\thttp://example.org/entity/{tail}\n"
                for head, relation, tail in (line.split() for line in lines)
            )
    code = (
        "import re, sys; from pathlib import Path; from pairre.graph.ingest.ingest import ingest; "
        "ingest(sys.argv[1], sys.argv[2], memory='500MB'); print(Path('/proc/self/status').read_text()); "
        "print('torch' in sys.modules)"
    )
    arguments = [sys.executable, "-c", code, str(large), str(tmp_path / "graph")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    peak = int(re.search(r"VmHWM:\s*(\d+) kB", done.stdout)[1]) * 1024
    assert peak < parse_bytes("550MB")
    assert done.stdout.endswith("False\n")  # torch alone would take half of it
    assert Path(tmp_path / "graph/train.npy").stat().st_size > 12 * 0.8 * 10 * NUM
