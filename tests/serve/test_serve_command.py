"""The command `pairre serve` as a real process: it starts, answers, says what is wrong, and stops in order."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from pairre.serve.http.server import address_of, take_port
from pairre.serve.http.start import named_runs
from pairre.support.errors import PairREError

TOKEN = "a-secret-of-some-length"
STARTS = 120  # seconds within which a loaded machine has started the server
FAST = ("--workers", "1", "--device", "cpu")


@contextmanager
def running(*arguments, environment=None):
    """Run the command on a free port; yield the process, its URL and the lines that it printed."""
    command = [sys.executable, "-m", "pairre", "serve", *map(str, arguments), "--port", "0", *FAST]
    environment = {**os.environ, **(environment or {})}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)
    reader.start()
    killer = threading.Timer(STARTS, process.kill)
    killer.start()
    try:
        line = process.stdout.readline()
        killer.cancel()
        found = re.search(r"http://\S+", line)
        assert found, (line, said)
        yield process, found.group(), said
    finally:
        killer.cancel()
        process.kill()
        process.wait()
        reader.join(10)
        process.stdout.close()
        process.stderr.close()


def get(url, headers=None, data=None):
    try:
        with urlopen(Request(url, data, headers or {}), timeout=60) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.slow
def test_a_server_starts_answers_and_stops(atlas_run, hostile_run, tmp_path):
    with running(atlas_run, f"other={hostile_run}", "--reviews", tmp_path) as (process, url, said):
        assert url.startswith("http://127.0.0.1:")
        assert get(f"{url}health") == (200, {"status": "ok"})
        assert get(f"{url}ready") == (200, {"status": "ok"})
        assert [run["name"] for run in get(f"{url}api/v1/runs")[1]["runs"]] == ["atlas", "other"]
        status, found = get(f"{url}api/v1/runs/atlas/predict?head=France&relation=borders&k=3")
        assert (status, len(found["answers"])) == (200, 3)
        assert get(f"{url}api/v1/runs/atlas/entity?name=Frnace")[1]["error"]["suggestions"][0] == "France"
        assert get(f"{url}health", {"Host": "evil.example"})[0] == 400
        posted = {"head": "France", "relation": "borders", "tail": "Peru", "verdict": "reject"}
        body = json.dumps(posted).encode()
        assert get(f"{url}api/v1/runs/atlas/review", {"Content-Type": "application/json"}, body)[0] == 200
        for _ in range(600):
            status, links = get(f"{url}api/v1/runs/atlas/discover?size=3")
            if status != 503:
                break
            assert links["error"]["code"] == "preparing"
            time.sleep(0.1)
        assert (status, len(links["links"])) == (200, 3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    text = "".join(said)
    assert "atlas: opening" in text
    assert "Traceback" not in text
    assert json.loads((tmp_path / "atlas.reviews.jsonl").read_text())["tail"] == "Peru"


@pytest.mark.slow
def test_ctrl_c_is_an_orderly_end(atlas_run):
    with running(atlas_run) as (process, url, said):
        assert get(f"{url}health")[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert "Traceback" not in "".join(said)


@pytest.mark.slow
def test_a_server_that_still_starts_can_be_stopped(atlas_run):
    command = [sys.executable, "-m", "pairre", "serve", str(atlas_run), "--port", "0", *FAST]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert "starting" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        printed, said = process.communicate(timeout=60)
    assert (process.returncode, printed) == (0, "")
    assert "Traceback" not in said


@pytest.mark.parametrize(("host", "begin"), [("127.0.0.1", "http://127.0.0.1:"), ("::1", "http://[::1]:")])
def test_addresses_of_both_kinds(host, begin):
    try:
        listening = take_port(host, 0)
    except PairREError:
        pytest.skip(f"this machine has no {host}")
    with listening:
        assert address_of(listening).startswith(begin)
        listening.listen()
        with pytest.raises(PairREError, match="another program"):
            take_port(host, listening.getsockname()[1])


@pytest.mark.slow
def test_a_token_of_the_environment_opens_the_server_to_others(atlas_run):
    with running(atlas_run, "--host", "0.0.0.0", environment={"PAIRRE_TOKEN": TOKEN}) as (_, url, said):
        url = url.replace("0.0.0.0", "127.0.0.1")
        assert get(f"{url}api/v1/runs")[0] == 401
        assert get(f"{url}api/v1/runs", {"Authorization": f"Bearer {TOKEN}", "Host": "any.example"})[0] == 200
    assert TOKEN not in "".join(said)


def refused(call, *arguments):
    """Return the line with which the command refuses to start."""
    code, printed, said = call("serve", *arguments)
    lines = [line for line in said.splitlines() if line.startswith("pairre: ")]
    assert (code, printed, len(lines)) == (2, "", 1), said
    return lines[0]


def test_what_is_wrong_is_said_before_anything_takes_time(call, atlas_run, tmp_path, monkeypatch):
    monkeypatch.delenv("PAIRRE_TOKEN", raising=False)
    assert "PAIRRE_TOKEN" in refused(call, atlas_run, "--host", "0.0.0.0")
    assert "16 or more" in refused(call, atlas_run, "--token", "short")
    assert "allow-origin" in refused(call, atlas_run, "--allow-origin", "*")
    assert "no such folder" in refused(call, atlas_run, "--reviews", tmp_path / "none")
    assert "no such run folder" in refused(call, tmp_path / "none")
    assert "not a run folder" in refused(call, tmp_path)
    assert "--workers" in refused(call, atlas_run, "--workers", 10**20)
    assert "two runs" in refused(call, atlas_run, atlas_run)
    assert "not an address" in refused(call, atlas_run, "--host", "127.0.0.1.no-such-host.invalid", "--token", TOKEN)


def test_a_port_that_is_taken(call, atlas_run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = refused(call, atlas_run, "--port", taken.getsockname()[1])
    assert "another program listens there" in said


def test_a_damaged_run(call, atlas_run, tmp_path):
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(atlas_run, broken)
    data = (broken / "graph" / "train.parquet").read_bytes()
    (broken / "graph" / "train.parquet").write_bytes(data[:-9])
    assert "damaged" in refused(call, broken, "--port", 0, *FAST)


def test_a_missing_extra(call, atlas_run, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("pairre.serve.http")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette.datastructures", None)
    monkeypatch.setitem(sys.modules, "starlette.types", None)
    assert "pip install 'pairre[serve]'" in refused(call, atlas_run)


def test_names_of_runs(tmp_path):
    (tmp_path / "a=b").mkdir()
    assert list(named_runs(["runs/one", "two=runs/one"])) == ["one", "two"]
    assert list(named_runs([f"x={tmp_path / 'a=b'}"])) == ["x"]
    with pytest.raises(PairREError, match="NAME=FOLDER"):
        named_runs([str(tmp_path / "a=b")])
    with pytest.raises(PairREError, match="NAME=FOLDER"):
        named_runs(["runs/with space"])
    assert named_runs(["."]).keys()


def test_help_ends_with_examples(call):
    code, printed, _ = call("serve", "--help")
    assert code == 0
    assert printed.rindex("Examples") < printed.rindex("pairre serve runs/atlas")
