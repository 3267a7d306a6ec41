"""How long the server takes for each of its answers, and for a search among 100,000 names, without HTTP around it.

    pairre train atlas --out runs/atlas
    python benchmarks/serve_answers.py runs/atlas

Each answer is asked for once, with arguments drawn from the graph, so that nothing is found in a cache of answers.
Beside the time that passes is the processor time, which a busy machine does not change.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import machine

NUM_NAMES, NUM_SEARCHES = 100_000, 200


def timed(calls: list[Callable[[], Any]]) -> dict[str, float]:
    """Return the median and the largest time of some calls, in milliseconds, and the processor time of each."""
    wall, busy = [], []
    for call in calls:
        start, work = time.perf_counter(), time.process_time()
        call()
        wall.append(1000 * (time.perf_counter() - start))
        busy.append(1000 * (time.process_time() - work))
    numbers = {"num_calls": len(calls)}
    for name, values in (("ms", wall), ("cpu_ms", busy)):
        numbers |= {f"{name}_p50": round(float(np.median(values)), 2), f"{name}_max": round(max(values), 2)}
    return numbers


def questions(graph: Any, num: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield functions of the server with arguments from random triples of the graph."""
    rows = torch.randperm(len(graph.train), generator=torch.Generator().manual_seed(0))[:num]
    for head, relation, tail in graph.names(graph.train[rows]):
        yield "landing", {}
        yield "search", {"q": head[: max(2, len(head) // 2)]}
        yield "entity_page", {"name": head}
        yield "neighbourhood", {"name": head}
        yield "relation_page", {"name": relation}
        yield "metrics_page", {}
        yield "predict", {"head": head, "relation": relation}
        yield "predict", {"relation": relation, "tail": tail}
        yield "score", {"triples": [[head, relation, tail]]}
        yield "discover", {"relation": relation}
        yield "similar", {"name": head}
        yield "why", {"head": head, "relation": relation, "tail": tail}


def answers(folder: Path, num: int) -> dict[str, Any]:
    """Return the times of every answer of a run."""
    from pairre.serve.answers import answer_call
    from pairre.serve.parts import Store, prepare
    from pairre.serve.state import RunState

    start = time.perf_counter()
    state = RunState.open("run", folder, "cpu")
    opened = time.perf_counter() - start
    state.store = Store.in_memory()
    start = time.perf_counter()
    prepare(state.run, state.store)
    prepared = time.perf_counter() - start
    calls: dict[str, list[Callable[[], Any]]] = {}
    for function, arguments in questions(state.run.graph, num + 1):
        calls.setdefault(function, []).append(lambda f=function, a=arguments: answer_call(state, f, a))
    for of_function in calls.values():
        of_function.pop(0)()  # the first one compiles
    return {
        "graph": state.run.graph.name,
        "features": state.run.recipe.model.dim,
        "seconds_to_open": round(opened, 2),
        "seconds_to_prepare": round(prepared, 2),
        "answers": {function: timed(of_function) for function, of_function in calls.items()},
    }


def searches() -> dict[str, Any]:
    """Return the times of building an index of many names, and of searches in it."""
    from pairre.graph import Vocabulary
    from pairre.graph.names import Names
    from pairre.serve.search import SearchIndex

    drawn = random.Random(0)
    words = ["".join(drawn.choices(string.ascii_lowercase, k=drawn.randint(3, 9))) for _ in range(20_000)]
    names: dict[str, None] = {}
    while len(names) < NUM_NAMES:
        names[" ".join(drawn.choices(words, k=drawn.randint(1, 4)))] = None
    start = time.process_time()
    index = SearchIndex(Names(Vocabulary(names, "entity"), None, {}), np.zeros(NUM_NAMES, np.int64))
    built = time.process_time() - start
    sample = drawn.sample([name for name in names if len(name) > 4], NUM_SEARCHES)
    wrong = [(name, drawn.randrange(1, len(name) - 2)) for name in sample]
    begun = [name[: drawn.randint(1, 6)] for name in sample]
    typos = [name[:i] + name[i + 1] + name[i] + name[i + 2 :] for name, i in wrong]
    return {
        "num_names": NUM_NAMES,
        "cpu_seconds_to_build": round(built, 2),
        "prefix": timed([lambda q=text: index.find(q, 10) for text in begun]),
        "typo": timed([lambda q=text: index.find(q, 10) for text in typos]),
        "typos_found": sum(
            name in [list(names)[hit.id] for hit in index.find(text, 10)]
            for name, text in zip(sample[:50], typos[:50], strict=True)
        )
        / 50,
    }


def main() -> None:
    """Measure, print, and write the result if a file is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--num", type=int, default=40, help="calls of each function")
    parser.add_argument("--json", type=Path, help="where to write the result")
    options = parser.parse_args()
    result = {"machine": machine.describe(), "run": answers(options.run, options.num), "search": searches()}
    text = json.dumps(result, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
