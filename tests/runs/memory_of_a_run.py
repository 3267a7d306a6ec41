"""Print the bytes of a large table in files, and by how much memory grew at most while its run was used."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from conftest import QUICK, cut_run, planted_graph

# isort: split
import torch

import pairre
from pairre.graph import Graph, Vocabulary
from pairre.inference import predict
from pairre.models import scoring
from pairre.runs import Run, build_model, load_run
from pairre.runs.shard_files import write_shard
from pairre.settings import override
from pairre.support.processes import Processes

ENTITIES, DIM, FILES = 375_000, 200, 3


def memory(name: str) -> int:
    """Return the bytes of this process that the system counts under a name."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", status)[1])


def large_graph() -> Graph:
    """Return a graph with many entities and few triples."""
    small = planted_graph()
    names = Vocabulary([f"e{i}" for i in range(ENTITIES)], "entity")
    return Graph("large", names, small.relations, small.train, small.valid, small.test)


def make(path: Path) -> None:
    """Write a run of 300 MB, file by file."""
    graph, recipe = large_graph(), override(QUICK, [f"model.dim={DIM}"])
    run = Run(graph, recipe, build_model(planted_graph(), recipe, torch.device("cpu")))
    run.save(path)
    weights, block = run.model.state_dict(), ENTITIES // FILES
    for number in range(FILES):
        rows = torch.randn(block, DIM, generator=torch.Generator().manual_seed(number))
        write_shard(path, Processes(number, FILES), {**weights, "entity": rows}, number * block, ENTITIES)
    (path / "model.safetensors").unlink()


def use(path: Path) -> None:
    """Open a run, rank and answer."""
    run = load_run(path, "cpu")
    pairre.evaluate(run)
    predict(run, head="e3", relation="next", any=True)


def main() -> None:
    """Compare the peak while the large run is used with memory after a small one."""
    path = Path(sys.argv[1])
    scoring.MAX_ELEMENTS = 1 << 20
    small = Run(planted_graph(), QUICK, build_model(planted_graph(), QUICK, torch.device("cpu")))
    cut_run(small.save(path.with_name("small")), 0, 20)
    use(path.with_name("small"))
    make(path)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins here
    before = memory("VmRSS")
    use(path)
    print(json.dumps([4 * ENTITIES * DIM, memory("VmHWM") - before]))


if __name__ == "__main__":
    main()
