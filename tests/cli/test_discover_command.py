"""The command `discover`: files in each format, a killed process, and requests that cannot be met."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest

from pairre.models import PairRE
from pairre.runs import Run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from conftest import QUICK, planted_graph

    graph = planted_graph()
    model = PairRE(graph.num_entities, graph.num_relations, QUICK.model.dim)
    model.initialise(0.5, 0)
    path = tmp_path_factory.mktemp("runs") / "ring"
    Run(graph, QUICK, model).save(path)
    return path


def read(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_format_has_the_same_links(call, folder, tmp_path):
    rows = {}
    for ending in ("csv", "jsonl", "parquet"):
        code, said, _ = call("discover", folder, "--out", tmp_path / f"links.{ending}", "-k", 12)
        assert code == 0
        assert "12 triples are in" in said
        rows[ending] = read(tmp_path / f"links.{ending}")
    assert [list(row) for row in rows["csv"]] == [list(row) for row in rows["jsonl"]]
    assert rows["jsonl"] == rows["parquet"]
    assert {"probability", "base_rate"} <= rows["jsonl"][0].keys(), "a probability has a base rate"
    assert [row["tail"] for row in rows["csv"]] == [row["tail"] for row in rows["jsonl"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["links.csv", "links.jsonl", "links.parquet"]


def test_bad_requests(call, folder, tmp_path):
    there = tmp_path / "there.csv"
    there.write_text("", encoding="utf-8")
    for options, message in (
        (["--out", tmp_path / "links.txt"], "unknown ending"),
        (["--out", tmp_path / "none" / "links.csv"], "there is no folder"),
        (["--out", there], "overwrite it with --force"),
        (["--out", tmp_path / "a.csv", "--relation", "nxt"], "no relation named 'nxt'"),
        (["--out", tmp_path / "a.csv", "--min-probability", "1"], "a number from 0 up to below 1"),
        (["--out", tmp_path / "a.csv", "-k", "0"], "-k"),
    ):
        code, _, said = call("discover", folder, *options)
        assert (code, len(said.strip().splitlines())) == (2, 1)
        assert message in said
    assert list(tmp_path.iterdir()) == [there]


@pytest.mark.parametrize("saved", [False, True])
def test_an_interrupt_says_how_to_go_on(call, folder, tmp_path, monkeypatch, saved):
    file = tmp_path / "links.csv"

    def interrupted(*_, state, **__):
        if saved:
            state.write_text("")
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["pairre.inference.discover"], "discover", interrupted)
    advice = f"; {file}.state is saved: the same command goes on from there" if saved else ""
    assert call("discover", folder, "--out", file) == (130, "", f"pairre: interrupted{advice}\n")


def test_a_killed_search_goes_on(folder, tmp_path):
    """A process that is killed while it searches, and the same command again."""
    file = tmp_path / "links.jsonl"
    options = ["discover", str(folder), "--out", str(file), "-k", "30", "--pairs", "all", "--device", "cpu"]
    code = f"""if True:
        import sys, time
        import pairre.inference.discover
        module = sys.modules["pairre.inference.discover"]
        module._SAVE_EVERY, module._MAX_QUERY_FEATURES = 0.0, {{"cpu": 16 * 5}}
        slow, whole = sys.argv[1] == "slow", module._Search._new_links
        def pause(*arguments):
            time.sleep(0.05 * slow)
            return whole(*arguments)
        module._Search._new_links = pause
        from pairre.cli import main
        main({options!r})
    """
    state = file.with_name("links.jsonl.state")
    process = subprocess.Popen([sys.executable, "-c", code, "slow"], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not state.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert state.exists()
    assert not file.exists()
    done = subprocess.run([sys.executable, "-c", code, "fast"], capture_output=True, text=True, check=False)
    assert "Going on from" in done.stdout, done.stderr
    assert not state.exists()
    resumed = read(file)
    file.unlink()
    subprocess.run([sys.executable, "-c", code, "fast"], capture_output=True, check=False)
    assert read(file) == resumed
    assert len(resumed) == 30
