"""Scorer processes: the same bits alone or together, one copy of the weights, and nothing hangs when one is killed."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pairre.serve.contract import EngineBusyError, EngineLostError, UnknownNameError
from pairre.serve.engine import EngineOptions, ProcessEngine
from pairre.support import plugins
from pairre.support.errors import PairREError

from .test_serve_command import running

PATIENCE = 300  # seconds that a loaded machine may take for what takes one


class Started:
    """An engine in an event loop of its own, in a thread."""

    def __init__(self, engine):
        self.engine, self.loop = engine, asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def wait(self, coroutine, seconds=PATIENCE):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(seconds)

    def ask(self, function, **arguments):
        return self.wait(self.engine.call("atlas", function, arguments))

    def until_ready(self):
        until = time.monotonic() + PATIENCE
        while not self.engine.ready():
            assert time.monotonic() < until, "the process did not come back"
            time.sleep(0.02)

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@contextmanager
def started(run, **options):
    """Run an engine; all its processes have ended after the block."""
    one = Started(ProcessEngine({"atlas": run}, EngineOptions(device="cpu", **{"workers": 1, **options})))
    try:
        one.wait(one.engine.start())
        yield one
    finally:
        pids = one.engine.pids
        one.wait(one.engine.stop())
        one.close()
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists(), "a process was left"


@pytest.fixture(scope="module")
def engine(atlas_run):
    with started(atlas_run, workers=2) as one:
        yield one


def queries(run, num=60):
    """Return different queries, of tails, heads and relations, with different options."""
    from pairre.runs import RunFolder

    graph = RunFolder.open(run).graph()
    names = list(graph.names(graph.train[:num]))
    forms = [
        lambda h, r, t: {"head": h, "relation": r},
        lambda h, r, t: {"relation": r, "tail": t, "k": 3},
        lambda h, r, t: {"head": h, "tail": t},
        lambda h, r, t: {"head": h, "relation": r, "known": True},
        lambda h, r, t: {"relation": r, "tail": t, "any": True, "k": 300},
    ]
    return [forms[number % len(forms)](*triple) for number, triple in enumerate(names)]


async def gather(engine, calls):
    """Return the results of calls that are made together: JSON or errors."""
    made = (engine.call_json("atlas", "predict", arguments) for arguments in calls)
    return await asyncio.gather(*made, return_exceptions=True)


@pytest.mark.slow
def test_together_or_alone_the_answer_has_the_same_bits(engine, atlas_run):
    asked = queries(atlas_run)
    before = engine.engine.numbers()
    together = engine.wait(gather(engine.engine, asked))
    after = engine.engine.numbers()
    assert after["calls"] - before["calls"] == len(asked)
    assert after["batches"] - before["batches"] < len(asked) / 3, "what waits goes as one batch"
    alone = [engine.wait(engine.engine.call_json("atlas", "predict", arguments)) for arguments in asked]
    assert together == alone


@pytest.mark.slow
def test_processes_answer_as_the_functions_do(engine, atlas_run):
    from pairre.serve.answers import answer_json
    from pairre.serve.state import RunState

    state = RunState.open("atlas", atlas_run, "cpu")
    assert state.prepared is None, "so that nothing is quick"
    for arguments in queries(atlas_run, 20):
        answered = engine.wait(engine.engine.call_json("atlas", "predict", arguments))
        assert json.loads(answered) == json.loads(answer_json(state, "predict", arguments))
    for function, arguments in [
        ("search", {"q": "fran"}),
        ("similar", {"name": "France"}),
        ("why", {"head": "France", "relation": "borders", "tail": "Italy"}),
        ("score", {"triples": [["France", "borders", "Italy"]]}),
    ]:
        answered = engine.wait(engine.engine.call_json("atlas", function, arguments))
        assert answered == answer_json(state, function, arguments)


def test_errors_come_through(engine):
    with pytest.raises(UnknownNameError) as error:
        engine.ask("predict", head="Frnace", relation="borders")
    assert "France" in error.value.suggestions
    with pytest.raises(UnknownNameError, match="no run"):
        engine.wait(engine.engine.call("other", "summary", {}))
    with pytest.raises(PairREError, match="give two"):
        engine.ask("predict", head="France")
    assert engine.ask("summary")["graph"] == "atlas"


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="reads /proc")
def test_all_processes_share_the_weights(engine, atlas_run):
    engine.ask("predict", head="France", relation="borders")
    files = (atlas_run / "model.safetensors").stat(), os.fstat(engine.engine._rows.fileno())
    for pid in engine.engine.pids:
        # Each mapping is a line with addresses and a file, then lines of numbers.
        mappings = re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path(f"/proc/{pid}/smaps").read_text())
        for file in files:
            mine = [mapping for mapping in mappings if int(mapping.split()[4]) == file.st_ino]
            assert mine, "a file is not mapped"
            for mapping in mine:  # no page of it was copied
                assert re.search(r"Private_Dirty:\s+0 kB", mapping), mapping
                assert re.search(r"Anonymous:\s+0 kB", mapping), mapping


def test_the_process_that_listens_loads_no_torch():
    check = "import sys, pairre.serve.http.start; print([m for m in ('torch', 'numba', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_a_killed_process_comes_back_and_nothing_hangs(atlas_run):
    with started(atlas_run) as one:
        asked = queries(atlas_run, 5)
        expected = one.wait(gather(one.engine, asked))

        async def client(stop, seen):
            while not stop.is_set():
                for answer, right in zip(await gather(one.engine, asked), expected, strict=True):
                    assert answer == right or isinstance(answer, EngineLostError), answer
                    seen.append(type(answer))
                await asyncio.sleep(0.005)

        async def load():
            stop, seen = asyncio.Event(), []
            clients = [asyncio.create_task(client(stop, seen)) for _ in range(4)]
            for _ in range(2):
                await asyncio.sleep(0.2)
                os.kill(one.engine.pids[0], signal.SIGKILL)
                while one.engine.ready():
                    await asyncio.sleep(0.005)
                while not one.engine.ready():
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.1)
            stop.set()
            await asyncio.gather(*clients)
            return seen

        seen = one.wait(load())
        assert {bytes, EngineLostError} == set(seen)
        assert one.engine.numbers()["restarts"] == 2
        assert one.wait(gather(one.engine, asked)) == expected


@pytest.mark.slow
def test_the_process_of_long_calls_comes_back_too(atlas_run):
    with started(atlas_run) as one:
        os.kill(one.engine.pids[-1], signal.SIGKILL)
        arguments = {"head": "France", "relation": "borders", "tail": "Italy"}
        until = time.monotonic() + PATIENCE
        while True:
            assert one.ask("predict", head="France", relation="borders"), "short calls go on"
            with suppress(EngineLostError):
                if one.engine.numbers()["restarts"]:
                    assert one.ask("why", **arguments)["rules"]
                    break
            assert time.monotonic() < until
            time.sleep(0.05)


@pytest.mark.slow
def test_too_much_is_refused_at_once_and_the_rest_is_answered(atlas_run):
    with started(atlas_run, max_waiting=8, max_batch=4) as one:
        asked = queries(atlas_run, 5) * 40
        results = one.wait(gather(one.engine, asked))
        kinds = {type(result) for result in results}
        assert kinds == {bytes, EngineBusyError}
        assert sum(isinstance(result, bytes) for result in results) >= 8
        assert all(result.retry_after for result in results if isinstance(result, EngineBusyError))
        assert one.engine.numbers()["waiting"] == 0
        again = one.wait(gather(one.engine, asked[:8]))
        assert all(isinstance(result, bytes) for result in again)


@pytest.mark.slow
def test_a_process_that_is_stuck_is_replaced(atlas_run):
    with started(atlas_run, seconds=2.0) as one:
        stuck = one.engine.pids[0]
        os.kill(stuck, signal.SIGSTOP)
        before = time.monotonic()
        [refused] = one.wait(gather(one.engine, queries(atlas_run, 1)))
        assert isinstance(refused, EngineBusyError)
        assert time.monotonic() - before < PATIENCE / 2
        until = time.monotonic() + PATIENCE
        while stuck in one.engine.pids or not one.engine.ready():
            assert time.monotonic() < until
            time.sleep(0.05)
        while not isinstance(one.wait(gather(one.engine, queries(atlas_run, 1)))[0], bytes):
            assert time.monotonic() < until  # two seconds may be too short on a loaded machine
        assert one.engine.numbers()["restarts"] >= 1


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
def test_clients_of_a_server_whose_process_is_killed_see_200_and_503(atlas_run):
    import httpx2 as httpx

    query = {"head": "France", "relation": "borders"}
    with running(atlas_run, "--rate", "0") as (process, address, _):
        url, seen, stop = f"{address}api/v1/runs/{atlas_run.name}/predict", [], threading.Event()
        right = httpx.get(url, params=query, timeout=PATIENCE)
        assert right.status_code == 200

        def load():
            with httpx.Client(timeout=PATIENCE) as client:
                while not stop.is_set():
                    answer = client.get(url, params=query)
                    assert answer.status_code != 200 or answer.content == right.content
                    assert answer.status_code != 503 or int(answer.headers["retry-after"]) >= 1
                    seen.append(answer.status_code)

        def until(holds):
            limit = time.monotonic() + PATIENCE
            while not holds():
                assert time.monotonic() < limit
                time.sleep(0.02)

        with ThreadPoolExecutor(6) as pool:
            loads = [pool.submit(load) for _ in range(6)]
            try:
                until(lambda: len(seen) > 20)
                os.kill(children_of(process.pid)[0], signal.SIGKILL)
                until(lambda: 503 in seen)
                number = len(seen)
                until(lambda: 200 in seen[number:])
            finally:
                stop.set()
            for one in loads:
                one.result(PATIENCE)
        assert set(seen) == {200, 503}
        assert httpx.get(f"{address}ready").status_code == 200


def children_of(pid):
    """Return the processes that a process started, the oldest first."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(child) for task in tasks for child in task.read_text().split())


@pytest.mark.slow
def test_a_run_that_cannot_be_opened_is_said(tmp_path):
    one = Started(ProcessEngine({"atlas": tmp_path / "no"}, EngineOptions(workers=1)))
    with pytest.raises(PairREError, match="no such run folder"):
        one.wait(one.engine.start())
    assert one.engine.pids == []
    one.close()


PLUGIN = """
from pairre.models import PairRE


class MyModel(PairRE):
    name = "my-model"
"""


@pytest.mark.slow
def test_processes_load_the_plug_ins_of_the_server(tmp_path, graph, monkeypatch):
    (tmp_path / "mine.py").write_text(PLUGIN)
    lines = ("\t".join(names) + "\n" for names in graph.names(graph.train))
    (tmp_path / "ring.tsv").write_text("".join(lines))
    arguments = ["--plugin", "mine.py", "train", "ring.tsv", "--out", "run", "--device", "cpu"]
    settings = ["--set", "model.name=my-model", "--set", "model.dim=16", "--set", "train.steps=5"]
    command = [sys.executable, "-m", "pairre", *arguments, *settings]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    monkeypatch.setattr(plugins, "loaded", [str(tmp_path / "mine.py")])
    with started(tmp_path / "run") as one:
        assert one.ask("summary")["model"] == "my-model"
        assert one.ask("predict", head="e3", relation="next")["answers"]


class OnGpu(ProcessEngine):
    """An engine whose processes say that they hold a GPU."""

    async def _open(self, process, verify):
        return {**await super()._open(process, verify), "device": "cuda"}


@pytest.mark.slow
def test_a_gpu_is_held_by_one_process_that_does_everything(atlas_run):
    one = Started(OnGpu({"atlas": atlas_run}, EngineOptions(workers=3, device="cpu")))
    try:
        one.wait(one.engine.start())
        [pid] = one.engine.pids
        query = {"head": "France", "relation": "borders"}
        expected = one.ask("predict", **query)
        assert one.ask("why", **query, tail="Italy")["rules"]
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + PATIENCE
        while one.engine.pids in ([], [pid]) or not one.engine.ready():
            assert time.monotonic() < until
            time.sleep(0.02)
        assert one.ask("predict", **query) == expected
        assert one.ask("why", **query, tail="Italy")["rules"]
        assert len(one.engine.pids) == 1
    finally:
        one.wait(one.engine.stop())
        one.close()
