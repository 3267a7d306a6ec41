"""Fixtures: a small planted graph, a quick recipe, and the public graphs where PAIRRE_DATA has them."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pairre  # first: it sets how OpenMP threads wait, which torch reads when it loads

# isort: split
import hypothesis
import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton loads: GPU kernels then run on the CPU

from pairre.graph import Graph, Vocabulary
from pairre.kernels import Backend, backend
from pairre.runs import Progress, load_run
from pairre.runs.folder import meaning_of
from pairre.runs.shard_files import write_shard
from pairre.settings import Recipe, from_values
from pairre.support.processes import STORE_FILE, Processes
from pairre.training.step import Trainer

assert pairre.__version__
hypothesis.settings.register_profile(
    "shared machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shared machine")

QUICK = from_values(
    {
        "model": {"dim": 16},
        "sampling": {"negatives": 8},
        "train": {"batch": 32, "steps": 60, "lr": 0.01, "validate_every": 20, "schedule": "linear"},
    }
)


def planted_graph(num_entities: int = 40, seed: int = 0) -> Graph:
    """Return a ring of entities with the relations `next`, its inverse `previous`, and a symmetric `beside`.

    A tenth of the triples is the valid split, another tenth the test split.
    """
    ring = torch.arange(num_entities)
    after = (ring + 1) % num_entities
    triples = torch.cat(
        [
            torch.stack([ring, torch.full_like(ring, 0), after], 1),
            torch.stack([after, torch.full_like(ring, 1), ring], 1),
            torch.stack([ring, torch.full_like(ring, 2), after], 1),
            torch.stack([after, torch.full_like(ring, 2), ring], 1),
        ]
    ).to(torch.int32)
    triples = triples[torch.randperm(len(triples), generator=torch.Generator().manual_seed(seed))]
    held = len(triples) // 10
    return Graph(
        "ring",
        Vocabulary([f"e{i}" for i in range(num_entities)], "entity"),
        Vocabulary(["next", "previous", "beside"], "relation"),
        triples[2 * held :].contiguous(),
        triples[:held].contiguous(),
        triples[held : 2 * held].contiguous(),
    )


def cut_run(path: Path, *starts: int) -> None:
    """Replace the file of weights of a run by files whose rows of entities begin at these ids."""
    model = load_run(path, "cpu").model
    weights, total = model.state_dict(), model.num_entities
    for number, (start, stop) in enumerate(zip(starts, [*starts[1:], total], strict=True)):
        tensors = {**weights, "entity": weights["entity"][start:stop]}
        write_shard(path, Processes(number, len(starts)), tensors, start, total, meaning_of(model))
    (path / "model.safetensors").unlink()


def resumed(make: Callable[[], Trainer]) -> None:
    """Compare a trainer after eight steps with one that continued from a checkpoint of step five."""
    whole, half, rest = (make() for _ in range(3))
    whole.advance(8)
    half.advance(5)
    for tensor, stored in zip(rest.tensors().values(), half.tensors().values(), strict=True):
        tensor.copy_(stored)
    rest.resume_from(Progress(step=5))
    rest.advance(3)
    for trainer in (whole, rest):
        trainer.flush()
    assert torch.equal(whole.model.relation, rest.model.relation)
    for (key, one), other in zip(whole.tensors().items(), rest.tensors().values(), strict=True):
        assert torch.equal(one, other), key


def in_processes(number: int, work: Callable[..., Any], *arguments: object) -> list[Any]:
    """Return what a function of a module returns in each of several processes that can meet, in order of ranks.

    They are forked from a process that has loaded torch and nothing else, so that starting them takes no time.
    """
    server = get_context("forkserver")
    server.set_forkserver_preload(
        ["pairre.training", "pairre.inference", "torch.distributed", "hypothesis", "torchrec"]
    )
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(number, server) as pool:
        every = {"WORLD_SIZE": str(number), STORE_FILE: f"{folder}/store", "GLOO_SOCKET_IFNAME": "lo"}
        places = [{"RANK": str(rank), **every} for rank in range(number)]
        return list(pool.map(_at_a_place, places, [work] * number, [arguments] * number, timeout=300))


def _at_a_place(place: dict[str, str], work: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
    os.environ.update(place)
    return work(*arguments)


@contextmanager
def cuda_kernels_on_the_cpu() -> Iterator[None]:
    """Compute everything on the CPU by the CUDA kernels, in Triton's interpreter."""
    chosen = sys.modules[Backend.__module__]._BACKENDS
    of_cpu = chosen["cpu"]
    chosen["cpu"] = chosen["cuda"]
    backend.cache_clear()
    try:
        yield
    finally:
        chosen["cpu"] = of_cpu
        backend.cache_clear()


def launch_plainly(trainer: Trainer) -> None:
    """Have a trainer on a GPU launch every step, instead of capturing and replaying CUDA graphs."""
    trainer._captured = None


@pytest.fixture
def graph() -> Graph:
    return planted_graph()


@pytest.fixture
def quick() -> Recipe:
    return QUICK


@pytest.fixture
def triples_file(graph: Graph, tmp_path: Path) -> Path:
    """The planted graph as a folder of named splits."""
    folder = tmp_path / "ring"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        lines = ("\t".join(names) + "\n" for names in graph.names(graph.split(split)))
        (folder / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process: (exit code, standard output, standard error)."""
    from pairre import cli

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def public(request: pytest.FixtureRequest) -> Path:
    """The folder of public graphs; tests that use it are skipped where there is none."""
    folder = os.environ.get("PAIRRE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("PAIRRE_DATA does not point at a folder with the public graphs")
    return Path(folder)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Debian's Chromium; tests that use it are skipped where it or Playwright is missing."""
    pytest.importorskip("playwright.sync_api")
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no Chromium on this machine: pages were not opened in a browser")
    return found


@pytest.fixture(scope="module")  # while it is open, an event loop runs in this thread, and no test can start another
def browser(chromium: str) -> Iterator[Any]:
    """Chromium, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        sandbox = [] if os.geteuid() else ["--no-sandbox"]  # Chromium refuses root with one
        found = driver.chromium.launch(executable_path=chromium, args=sandbox)
        yield found
        found.close()
