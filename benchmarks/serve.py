"""Requests a second and their latency: `pairre serve` beside a plain FastAPI and torch service of the same model.

    PAIRRE_DATA=folder python benchmarks/serve.py [--run RUN] [--keep]

wrk (https://github.com/wg/wrk) asks for the ten best answers to distinct queries of FB15k-237 over loopback, from 1, 8
and 64 clients. All servers run in one go and are measured in turn, so that what else the machine does meets all.
Then ten times as many clients ask as the server works for together: what is shed, how soon it is back, and its memory.
Without `--run`, the run is one of 200 features as they are drawn, untrained: its speed is that of any other.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import machine

HERE = Path(__file__).resolve().parent
CLIENTS = (1, 8, 64)
NUM_QUERIES = 100_000
OVERLOAD = 640  # clients, ten times as many as `pairre serve` works for at the same time
_PREPARATION = 900  # seconds that the work in the background may take
PAIRRE = "/api/v1/runs/fb/predict?"
# server → how it is started, and what is asked of it
SERVERS: dict[str, dict[str, Any]] = {
    "pairre serve": {"path": PAIRRE, "more": {}},
    "pairre serve, all entities": {"path": PAIRRE, "more": {"any": "true"}, "same": "pairre serve"},
    "FastAPI that answers nothing": {"path": "/nothing?", "more": {}, "same": "plain, 1 process"},
    "plain, 1 process": {"path": "/predict?", "more": {}, "form": "norm", "processes": 1},
    "plain, 2 processes of 1 thread": {"path": "/predict?", "more": {}, "form": "norm", "processes": 2},
    "plain, async, 2 processes of 1 thread": {
        **{"path": "/predict?", "more": {}, "form": "norm", "processes": 2, "endpoint": "async"},
    },
    "plain with cdist, async, 2 processes of 1 thread": {
        **{"path": "/predict?", "more": {}, "form": "cdist", "processes": 2, "endpoint": "async"},
    },
}


# --- runs, queries, servers ---


def make_run(folder: Path) -> Path:
    """Write a run of 200 features as they are drawn, with the probabilities that fit it."""
    import pairre
    from pairre.runs import Run
    from pairre.runs.run import build_model
    from pairre.settings import from_values

    graph = pairre.load_graph("fb15k-237")
    recipe = from_values({"model": {"dim": 200}})
    import torch

    run = Run(graph, recipe, build_model(graph, recipe, torch.device("cpu")))
    pairre.calibrate(run)
    return run.save(folder / "fb")


def write_queries(run: Path, folder: Path) -> dict[str, Path]:
    """Write a file of distinct queries for each server, and return the files."""
    from pairre.runs import RunFolder

    graph = RunFolder.open(run).graph()
    names = list(graph.names(graph.train))
    queries = {("head", h, r) for h, r, _ in names} | {("tail", t, r) for _, r, t in names}
    chosen = random.Random(0).sample(sorted(queries), min(NUM_QUERIES, len(queries)))
    files = {}
    for number, (server, how) in enumerate(SERVERS.items()):
        files[server] = folder / f"queries-{number}.txt"
        lines = (how["path"] + urlencode({end: e, "relation": r, "k": 10} | how["more"]) for end, e, r in chosen)
        files[server].write_text("\n".join(lines) + "\n", encoding="ascii")
    return files


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def command_of(server: str, run: Path, port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command of a server and its environment."""
    how, environment = SERVERS[server], dict(os.environ)
    if "form" not in how:
        limits = ["--rate", "0", "--max-concurrent", "64"]
        return [sys.executable, "-m", "pairre", "serve", f"fb={run}", "--port", str(port), *limits], environment
    environment |= {"PAIRRE_RUN": str(run), "PAIRRE_FORM": how["form"]}
    environment["PAIRRE_ENDPOINT"] = how.get("endpoint", "def")
    environment.pop("OMP_NUM_THREADS", None)
    if how["processes"] > 1:
        environment["OMP_NUM_THREADS"] = "1"
    more = ["--workers", str(how["processes"]), "--no-access-log", "--log-level", "error"]
    command = [sys.executable, "-m", "uvicorn", "plain_service:app", "--app-dir", str(HERE), "--port", str(port), *more]
    return command, environment


@contextlib.contextmanager
def running(server: str, run: Path) -> Iterator[tuple[str, int]]:
    """Run a server and yield its address and process; it has ended after the block."""
    port = free_port()
    command, environment = command_of(server, run, port)
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, cwd=HERE)
    address = f"http://127.0.0.1:{port}"
    try:
        probe = "/docs" if "form" in SERVERS[server] else "/ready"
        wait_for(lambda: get(address + probe)[0] == 200, 120, f"{server} to start")
        if "form" not in SERVERS[server]:
            wait_for(lambda: not get_json(f"{address}/api/v1/runs/fb")["preparing"], _PREPARATION, "the background")
        yield address, process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def get(url: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body; status 0 if nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read()
    except OSError:
        return 0, {}, b""


def get_json(url: str) -> Any:
    return json.loads(get(url)[2])


def wait_for(holds: Any, seconds: float, what: str) -> float:
    """Wait until something holds, and return how long that took."""
    started = time.perf_counter()
    while not holds():
        if time.perf_counter() - started > seconds:
            sys.exit(f"waited {seconds:g} seconds for {what}")
        time.sleep(0.1)
    return time.perf_counter() - started


# --- measuring ---


def wrk(address: str, queries: Path, first: int, clients: int, seconds: float, count: bool = False) -> dict[str, Any]:
    """Return what wrk says of so many seconds of requests."""
    command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds:g}s", "--timeout", "30s", "-s", str(HERE / "queries.lua")]
    command += [address, "--", str(queries), str(first), "count" if count else "plain"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + 120).stdout
    result: dict[str, Any] = json.loads(said.split("RESULT ", 1)[1])
    return {"requests_per_second": result["requests"] / result["seconds"], **result}


def tree(pid: int) -> list[int]:
    """Return a process and those below it."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return found


def memory(pid: int) -> dict[str, float]:
    """Return the memory of a server with its processes in MB; pages that several share count once in `proportional`."""
    totals = {"Rss": 0, "Pss": 0}
    for process in tree(pid):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
            for name in totals:
                totals[name] += int(re.findall(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)[0])
    return {"resident_mb": round(totals["Rss"] / 1024, 1), "proportional_mb": round(totals["Pss"] / 1024, 1)}


def compare(run: Path, files: dict[str, Path], seconds: float, rounds: int) -> dict[str, Any]:
    """Measure all servers in turn; the others wait meanwhile."""
    found: dict[str, Any] = {server: {str(clients): [] for clients in CLIENTS} for server in SERVERS}
    with contextlib.ExitStack() as stack:
        started = {s: stack.enter_context(running(s, run))[0] for s, how in SERVERS.items() if "same" not in how}
        addresses = {server: started[how.get("same", server)] for server, how in SERVERS.items()}
        agreement = compare_answers(addresses, files)
        first = dict.fromkeys(SERVERS, 0)
        for server, address in addresses.items():  # caches, pools of threads
            first[server] += wrk(address, files[server], 0, 8, 2)["requests"]
        for _ in range(rounds):
            for clients in CLIENTS:
                for server, address in addresses.items():
                    one = wrk(address, files[server], first[server], clients, seconds)
                    first[server] += one["requests"]
                    found[server][str(clients)].append(one)
                    print(
                        f"{server:<44} {clients:>3} clients {one['requests_per_second']:>9.1f}/s  "
                        f"p50 {one['p50_ms']:>8.2f} ms  p99 {one['p99_ms']:>8.2f} ms",
                        flush=True,
                    )
    return {"rounds": found, "queries_used": first, "agreement": agreement}


def compare_answers(addresses: dict[str, str], files: dict[str, Path], num: int = 50) -> dict[str, Any]:
    """Return how many of some queries have the same ten answers from the plain service and from ours."""
    same = 0
    servers = ("pairre serve, all entities", "plain, 1 process")
    for ours, theirs in zip(*(files[server].read_text().splitlines()[:num] for server in servers), strict=True):
        one = get_json(addresses[servers[0]] + ours)["answers"]
        other = get_json(addresses[servers[1]] + theirs)["answers"]
        names = [{(a["head"]["name"], a["tail"]["name"]) for a in one}, {(a["head"], a["tail"]) for a in other}]
        close = all(abs(a["score"] - b["score"]) < 1e-3 for a, b in zip(one, other, strict=True))
        same += close and len(names[0] & names[1]) >= 9  # two that score the same within rounding may change places
    return {"queries": num, "same_answers": same}


def overload(run: Path, files: dict[str, Path], seconds: float) -> dict[str, Any]:
    """Ask from ten times as many clients as are worked for together, and return what happened."""
    server = "pairre serve"
    with running(server, run) as (address, pid):
        before = wrk(address, files[server], 0, 64, seconds)
        memories, stopped, waits = [memory(pid)], threading.Event(), list[str]()

        def watch() -> None:
            while not stopped.wait(0.5):
                memories.append(memory(pid))
                status, headers, _ = get(address + PAIRRE + "head=x&relation=y")
                if status == 503:
                    waits.append(headers.get("retry-after", "none"))

        watcher = threading.Thread(target=watch)
        watcher.start()
        during = wrk(address, files[server], 0, OVERLOAD, 3 * seconds, count=True)
        stopped.set()
        watcher.join()
        query = files[server].read_text().splitlines()[0]
        back = wait_for(lambda: get(address + query)[0] == 200, 30, "an answer after the overload")
        after = wrk(address, files[server], 0, 64, seconds)
        memories.append(memory(pid))
    return {
        "clients_before_and_after": 64,
        "clients_during": OVERLOAD,
        "before": before,
        "during": during,
        "answered_per_second_during": during["statuses"].get("200", 0) / during["seconds"],
        "retry_after_seen": sorted(set(waits)),
        "seconds_until_an_answer": round(back, 3),
        "after": after,
        "memory": {
            "before": memories[0],
            "most_resident_mb": max(m["resident_mb"] for m in memories),
            "after": memories[-1],
        },
    }


def summarise(compared: dict[str, Any]) -> dict[str, Any]:
    """Return the median over rounds of each figure, and the ratios of each round to the better plain service."""
    figures = ("requests_per_second", "p50_ms", "p99_ms")
    rounds = compared["rounds"]
    medians = {
        server: {
            clients: {name: round(statistics.median(one[name] for one in found), 3) for name in figures}
            for clients, found in by_clients.items()
        }
        for server, by_clients in rounds.items()
    }
    ratios = {}
    for server in (s for s in SERVERS if "form" not in SERVERS[s]):
        for label, others in plain_services().items():
            ratios[f"{server} / {label}"] = {
                str(clients): ratio(rounds[server][str(clients)], [rounds[o][str(clients)] for o in others])
                for clients in CLIENTS
            }
    at_equal_p99 = {
        label: {str(clients): at_p99(medians, "pairre serve", others, str(clients)) for clients in CLIENTS}
        for label, others in plain_services().items()
    }
    return {"medians": medians, "ratios": ratios, "throughput_at_equal_p99": at_equal_p99}


def at_p99(medians: dict[str, Any], server: str, others: list[str], clients: str) -> float | None:
    """Return by how much a server's throughput exceeds that of some services with so many clients, at their p99.

    Of the numbers of clients at which the server's p99 is no higher, the one with the highest throughput counts; None
    if there is none.
    """
    most = max(medians[other][clients]["requests_per_second"] for other in others)
    least = min(medians[other][clients]["p99_ms"] for other in others)
    fit = [one["requests_per_second"] for one in medians[server].values() if one["p99_ms"] <= least]
    return round(max(fit) / most, 2) if fit else None


def plain_services() -> dict[str, list[str]]:
    """Return the services that stand for each way to write a plain one; of several, the better one counts."""
    plain = {server: how for server, how in SERVERS.items() if "form" in how}
    return {
        "plain": [server for server, how in plain.items() if how["form"] == "norm" and "endpoint" not in how],
        "plain, async": [server for server, how in plain.items() if how["form"] == "norm" and "endpoint" in how],
        "plain with cdist, async": [server for server, how in plain.items() if how["form"] == "cdist"],
    }


def ratio(ours: list[dict[str, Any]], others: list[list[dict[str, Any]]]) -> dict[str, float]:
    """Return the median over rounds of our throughput and p99 by those of the best of some services in that round."""
    throughput = [
        one["requests_per_second"] / max(o[i]["requests_per_second"] for o in others) for i, one in enumerate(ours)
    ]
    p99 = [one["p99_ms"] / min(o[i]["p99_ms"] for o in others) for i, one in enumerate(ours)]
    return {
        "throughput": round(statistics.median(throughput), 2),
        "throughput_least": round(min(throughput), 2),
        "p99": round(statistics.median(p99), 4),
        "p99_most": round(max(p99), 4),
    }


def main() -> None:
    """Measure, print and keep."""
    parser = machine.options(__doc__.split("\n\n")[0])
    parser.add_argument("--run", type=Path, help="a run of FB15k-237 to serve, instead of one as it is drawn")
    parser.add_argument("--seconds", type=float, default=0, help="of each measurement (default 5)")
    parser.add_argument("--note", default="", help="a sentence about the machine, kept with the result")
    arguments: argparse.Namespace = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed: apt-get install wrk")
    seconds = arguments.seconds or (1 if arguments.quick else 5)
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    described = machine.describe()
    with tempfile.TemporaryDirectory() as folder:
        run = arguments.run or make_run(Path(folder))
        files = write_queries(run, Path(folder))
        compared = compare(run, files, seconds, rounds)
        shed = overload(run, files, seconds)
    summary = summarise(compared)
    shown = {**summary["ratios"], "throughput_at_equal_p99": summary["throughput_at_equal_p99"], "overload": shed}
    print(json.dumps(shown, indent=2))
    weights = "given with --run" if arguments.run else "200 features as they are drawn, untrained"
    result = {
        "what": __doc__.split("\n\n")[0],
        "machine": {**described, "load_average_at_end": [round(x, 2) for x in os.getloadavg()]},
        "versions_of_servers": {name: machine_version(name) for name in ("fastapi", "uvicorn", "pydantic", "orjson")},
        "note": arguments.note,
        "run": weights,
        "queries": f"{NUM_QUERIES:,} distinct ones, k = 10; the server keeps no answers",
        "seconds_each": seconds,
        **summary,
        "overload": shed,
        **compared,
    }
    machine.write("serve", result, arguments)


def machine_version(package: str) -> str:
    """Return the version of an installed package."""
    from importlib import metadata

    return metadata.version(package)


if __name__ == "__main__":
    main()
