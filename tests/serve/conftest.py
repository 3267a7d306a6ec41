"""Runs that are served: a small one on the bundled graph, and one whose names are hostile; trained once."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pairre
from pairre.settings import from_values

from .browsing import fetched, settle

SMALL = from_values(
    {
        "model": {"dim": 32},
        "sampling": {"negatives": 16},
        "train": {"batch": 256, "steps": 150, "lr": 0.02, "validate_every": 0, "schedule": "linear"},
    }
)
HOSTILE = [
    *("<script>alert(1)</script>", "a\"b'c", "a/b/../c", "..%2f..%2fetc", "&amp;<b>", "x?y=1&z#w", "100%", "+1"),
    *("🦆 duck", "שלום \u202eabc", "مرحبا", "tab\x1b[2J", "line\u2028break", "=cmd()", "{{7*7}}", "long " + "é" * 5000),
]
HOSTILE_RELATIONS = ["<i>rel</i>", 'says "hi"/loud', "\x1b]0;title\x07"]


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAIRRE_CACHE", str(tmp_path_factory.mktemp("serve-cache")))
        yield


@pytest.fixture(scope="session")
def atlas_run(tmp_path_factory) -> Path:
    """A run folder of a few steps on the bundled graph."""
    return pairre.train("atlas", SMALL).save(tmp_path_factory.mktemp("runs") / "atlas")


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory) -> Path:
    """A run folder whose entities and relations have hostile names, labels and types."""
    every = list(itertools.product(HOSTILE, HOSTILE_RELATIONS, HOSTILE))
    triples = [row for number, row in enumerate(every) if number % 3]
    return pairre.train(triples, SMALL).save(tmp_path_factory.mktemp("runs") / "hostile")


@contextmanager
def served(runs: dict[str, Path], folder: Path | None = None, **options: Any) -> Iterator[SimpleNamespace]:
    """Serve runs in this process: a `client`, the `engine`, the `service` and the `app`."""
    from starlette.testclient import TestClient

    from pairre.serve.http.app import Service, build_app
    from pairre.serve.http.limits import Limits
    from pairre.serve.http.start import open_reviews
    from pairre.serve.local import LocalEngine
    from pairre.serve.state import RunState

    prepares = options.pop("prepares", True)
    reviews = open_reviews(runs, folder, lambda _: None) if folder else {}
    engine = LocalEngine(lambda: [RunState.open(name, path, "cpu") for name, path in runs.items()], prepares=prepares)
    with ExitStack() as stack:
        for stored in reviews.values():
            stack.callback(stored.close)
        asyncio.run(engine.start())
        stack.callback(lambda: asyncio.run(engine.stop()))
        options.setdefault("limits", Limits(rate=0))
        service = Service(engine, list(runs), reviews=reviews, **options)
        app = build_app(service)
        client = stack.enter_context(TestClient(app, base_url="http://localhost", raise_server_exceptions=False))
        yield SimpleNamespace(client=client, engine=engine, service=service, app=app)


@pytest.fixture(scope="session")
def server(atlas_run, hostile_run, tmp_path_factory) -> Iterator[SimpleNamespace]:
    """Both runs, with everything prepared."""
    runs = {"atlas": atlas_run, "hostile": hostile_run}
    with served(runs, tmp_path_factory.mktemp("reviews")) as found:
        found.engine._preparation.join()
        yield found


@pytest.fixture
def ask(server) -> Callable[..., Any]:
    """Ask the atlas run, or another, for a path below it; the answer must be 200."""

    def get(path: str, run: str = "atlas", **parameters: Any) -> Any:
        response = server.client.get(f"/api/v1/runs/{run}{path}", params=parameters)
        assert response.status_code == 200, response.text
        return response.json()

    return get


# --- the explorer in a browser ---


@pytest.fixture(scope="session")
def explored(atlas_run, hostile_run, tmp_path_factory):
    """Run folders by name: the bundled graph first; CoDEx-S, with labels and types, where PAIRRE_DATA has it."""
    runs = {"atlas": atlas_run}
    codex = Path(os.environ.get("PAIRRE_DATA", "")) / "codex-s"
    if codex.is_dir():
        graph = pairre.load_graph(codex, labels=codex / "relation-labels.tsv.gz", types=codex / "types.tsv.gz")
        run = pairre.train(graph, SMALL, progress=False, device="cpu")
        runs["codex"] = run.save(tmp_path_factory.mktemp("explored") / "codex")
    return runs | {"hostile": hostile_run}


@pytest.fixture(scope="session")
def site(chromium, explored, tmp_path_factory):
    """The address of a server of these runs, started by the command; `chromium` comes first, to skip without one."""
    reviews = tmp_path_factory.mktemp("verdicts")
    arguments = [f"{name}={folder}" for name, folder in explored.items()]
    command = [sys.executable, "-m", "pairre", "serve", *arguments, "--port", "0", "--reviews", str(reviews)]
    server = subprocess.Popen(
        [*command, "--device", "cpu", "--rate", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    said = []
    for line in server.stdout:
        said.append(line)
        if found := re.search(r"http://\S+", line):
            break
    else:
        pytest.fail("".join(said))
    for name in explored:
        while fetched(found.group(), "", name)["preparing"]:
            time.sleep(0.2)
    yield found.group()
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0
    server.stdout.close()


@pytest.fixture
def opened(browser, site):
    """A function that opens a page of the explorer; no console error and no request to elsewhere may come of it."""
    faults, expected = [], []
    with ExitStack() as stack:

        def open_page(address="#/", expect=(), **options):
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(20_000)
            expected.extend(expect)
            page.on("console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("request", lambda r: None if r.url.startswith((site, "blob:")) else faults.append(r.url))
            page.goto(site + address)
            settle(page)
            return page

        yield open_page
    assert [fault for fault in faults if not any(word in fault for word in expected)] == []
