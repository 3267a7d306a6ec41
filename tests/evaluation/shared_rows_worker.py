"""What one of several processes that share the rows of runs finds in them, or one process beside them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import pairre
from pairre.evaluation.topk import best_entities
from pairre.inference import discover, neighbours, predict_many, score
from pairre.inference.export import export
from pairre.runs import Run, load_run
from pairre.support.errors import PairREError
from pairre.support.processes import Processes, join_processes
from pairre.tables import DividedRows

SMALL = {  # so that chunks, blocks and lists that overflow are passed through on a small graph
    ("pairre.evaluation.topk", "_MAX_SCORES"): {"cpu": 60},
    ("pairre.evaluation.topk", "_MAX_QUERIES"): {"cpu": 7},
    ("pairre.inference.discover", "_MIN_CANDIDATES"): 9,
    ("pairre.inference.discover", "_MAX_CANDIDATE_FEATURES"): 1,
    ("pairre.inference.discover", "_MOST_FOUND"): {"cpu": 90},
    ("pairre.inference.discover", "_SAVE_EVERY"): 0.0,
}


def findings(run: Run) -> dict:
    """Return what is ranked, searched and answered, as plain values."""
    graph, model = run.graph, run.model
    triples = torch.cat([graph.test, graph.valid]).long()
    found = {"evaluate": pairre.evaluate(run, "test", "relation", plausible=True)}
    for side in ("tail", "head"):
        for candidates in (None, torch.arange(0, graph.num_entities, 3)):
            for k in (1, 3, graph.num_entities):
                best = best_entities(
                    model, triples, side, k, candidates=candidates, known=graph.known, without_own=candidates is None
                )
                which = "all" if candidates is None else "some"
                found[f"best {k} of {which}, {side}"] = best.ids.tolist(), best.scores.tolist(), best.num_lost
        found[f"scores, {side}"] = model.score_all(triples, side).tolist()
    names = list(graph.names(triples[:10]))
    queries = [(h, r, None) for h, r, _ in names] + [(None, r, t) for _, r, t in names] + [(names[0][0], None, "e1")]
    found["predict"] = [[asdict(answer) for answer in one] for one in predict_many(run, queries, k=4)]
    found["score"] = [asdict(one) for one in score(run, names)]
    found["discover"] = [asdict(link) for link in discover(run, k=7)]
    return found


def more_findings(run: Run, folder: Path) -> dict:
    """Return what is found in other ways, and what is written."""
    found = {}
    for options in ({"k": 3, "per_relation": True}, {"k": 5, "pairs": "all"}, {"k": 50, "min_probability": 0.1}):
        found[f"discover {options}"] = [asdict(link) for link in discover(run, **options)]
    found["discover in two parts"] = [asdict(link) for link in interrupted(run, folder / "search.state")]
    found["similar"] = [asdict(one) for one in neighbours.similar(run, "e0", k=5)]
    found["duplicates"] = [asdict(one) for one in neighbours.duplicates(run, threshold=0.9)]
    found["vectors"] = run.entity_vectors().array.tolist()
    export(run, folder / "vectors.tsv")
    found["exported"] = (folder / "vectors.tsv").read_text() if run.writes else ""
    return found


def interrupted(run: Run, state: Path) -> list:
    """Return what a search finds that was interrupted and goes on from its state."""
    calls = 0

    def stop(_: float) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt

    try:
        discover(run, k=7, state=state, progress=stop)
    except KeyboardInterrupt:
        assert not run.writes or state.exists()
    if run.model.processes:
        run.model.processes.any(True)  # the first process has written the state
    links = discover(run, k=7, state=state)
    if run.writes:
        state.unlink()
    return links


def share_in_memory(run: Run, processes: Processes) -> Run:
    """Return a run of which this process holds a block of the rows of entities, as one that trains has it."""
    table = run.model.stored["entity"]
    block = processes.block_of_rows(table.num_rows)
    held = table.gather(torch.arange(block.start, block.stop)).to(run.model.entity.dtype)
    run.model.set_rows(DividedRows(processes, held, table.num_rows))
    return run


def work(folder: Path, out: Path) -> dict[str, Any]:
    """Return what is found in every run of a folder; files are written to another one."""
    for (module, name), value in SMALL.items():
        setattr(sys.modules[module], name, value)
    processes, found = join_processes(), {}
    out.mkdir(exist_ok=True)
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        try:
            run = load_run(path, "cpu", processes=processes)
            assert (run.model.processes is None) == (processes.size == 1)
            if path.name in ("pairre", "transr") and processes.size == 2:
                found[path.name] = findings(share_in_memory(load_run(path, "cpu"), processes))
            else:
                found[path.name] = findings(run)
            if path.name == "pairre":
                found[path.name] |= more_findings(run, out)
        except PairREError as error:
            found[path.name] = str(error)
    return found
