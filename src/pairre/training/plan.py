"""What training a graph would need, before anything is allocated: memory by part, where it fits, and how long it takes.

B positives of a batch, N triples of train, P pairs of the index, which are at most N.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pairre.graph import Graph, Vocabulary, load_graph
from pairre.models import model_class
from pairre.settings import Overrides, Recipe, resolve
from pairre.support.errors import GraphError, RecipeError
from pairre.support.memory import available_bytes, readable_bytes
from pairre.tables import local_table
from pairre.training.measured_steps import MEASURED_STEPS, MeasuredStep
from pairre.training.memory import COPIES_OF_ROWS, bytes_of_batch

_SIZES = re.compile(r"(?:\d+(?:\.\d+)?[kmg]?/){2}\d+(?:\.\d+)?[kmg]?", re.IGNORECASE)
_CARDS = {"NVIDIA H200, 141 GB": 141e9, "80 GB card": 80e9, "24 GB card": 24e9}
_SAMPLE_ROWS = 8  # of a table that shows how much state an optimiser keeps for a row
_INDEX_SIDES = 2


@dataclass(frozen=True)
class Part:
    """The memory of one part of training."""

    name: str
    num_bytes: int  # in one process
    divided: bool  # whether several processes would divide it
    on_host: bool = False  # whether it stays in the memory of the machine when a GPU computes


@dataclass(frozen=True)
class Place:
    """A memory that training may run in."""

    name: str
    num_bytes: int
    missing: int  # bytes; 0 if all fits
    why: str  # what does not fit, or nothing


@dataclass(frozen=True)
class Duration:
    """How long training takes on a device."""

    device: str
    step_ms: float
    epoch_hours: float
    run_hours: float
    measured: bool  # with these settings; else computed from the nearest that were
    source: MeasuredStep


@dataclass(frozen=True)
class Plan:
    """What training a graph would need."""

    sizes: tuple[int, int, int]  # entities, relations, triples of train
    recipe: Recipe
    num_processes: int
    parts: list[Part]
    places: list[Place]
    durations: list[Duration]

    @property
    def needed(self) -> int:
        """Bytes of one process."""
        return sum(part.num_bytes for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can represent."""
        return {
            "entities": self.sizes[0],
            "relations": self.sizes[1],
            "triples": self.sizes[2],
            "processes": self.num_processes,
            "needed_bytes": self.needed,
            "needed_bytes_of_all_processes": self.num_processes * self.needed,
            "parts": [vars(part) for part in self.parts],
            "places": [vars(place) for place in self.places],
            "durations": [{**vars(found), "source": vars(found.source)} for found in self.durations],
        }


def make_plan(
    graph: Any, recipe: Recipe | str | Path | None = None, *, overrides: Overrides = (), num_processes: int = 1
) -> Plan:
    """Return what training would need on a graph, on what `load_graph` takes, or on sizes such as "91M/1387/600M".

    The sizes are entities, relations and triples. `num_processes` divide the rows of entities between them.
    """
    if num_processes < 1:
        raise RecipeError(f"--nproc {num_processes}: at least one process expected")
    loaded = graph if isinstance(graph, Graph) else graph_of_sizes(str(graph)) or load_graph(graph)
    resolved = resolve(loaded, recipe, overrides)
    sizes = loaded.num_entities, loaded.num_relations, len(loaded.train)
    if not sizes[2]:
        raise GraphError(f"{loaded.name}: train is empty")
    parts = _parts(loaded, resolved, num_processes)
    return Plan(sizes, resolved, num_processes, parts, _places(parts, num_processes), _durations(sizes[2], resolved))


class _Unnamed(Vocabulary):
    """A vocabulary of which only the size is known."""

    def __init__(self, num: int, item: str) -> None:
        super().__init__((), item)
        self._num = num

    def __len__(self) -> int:
        return self._num


def graph_of_sizes(text: str) -> Graph | None:
    """Return a graph that has sizes and nothing else, or None for a text that gives none."""
    if not _SIZES.fullmatch(text):
        return None
    entities, relations, triples = map(_number, text.split("/"))
    train = torch.empty(triples, 3, dtype=torch.int32, device="meta")
    return Graph(text, _Unnamed(entities, "entity"), _Unnamed(relations, "relation"), train, train[:0], train[:0])


def _number(text: str) -> int:
    power = " kmg".index(text[-1].lower()) if text[-1].isalpha() else 0
    return round(float(text.rstrip("kmgKMG")) * 1000.0**power)


# --- memory ---


def _parts(graph: Graph, recipe: Recipe, num_processes: int) -> list[Part]:
    with torch.device("meta"):
        model = model_class(recipe.model.name)(
            *(graph.num_entities, graph.num_relations, recipe.model.dim, recipe.model.storage),
            reciprocal=recipe.model.reciprocal,
        )
    parts = []
    for name, table in model.named_parameters():
        divided = name == "entity"
        rows = -(-len(table) // num_processes) if divided else len(table)
        row = table.shape[1] * table.element_size()
        where = divided, divided and recipe.tables.place == "host"
        parts.append(Part(f"table of {name} rows", rows * row, *where))
        parts.append(Part(f"optimiser of {name} rows", rows * _state_of_row(table, recipe), *where))
    num = len(graph.train)
    on_disk = " (on disk: 0 on a CPU)" if graph.stored else ""
    parts.append(Part(f"index of known triples, at most{on_disk}", _INDEX_SIDES * (16 + 4) * num, False))
    parts.append(Part(f"triples and their weights{on_disk}", (12 + 4) * num, False))
    positives = -(-min(recipe.train.batch, num) // num_processes)  # each has negatives for its share of them
    batch = bytes_of_batch(type(model), recipe, graph, positives)
    parts.append(Part("rows of a batch", COPIES_OF_ROWS * batch, False))
    return parts


def _state_of_row(table: torch.nn.Parameter, recipe: Recipe) -> int:
    """Return the bytes that the optimiser keeps for a row, found out from a small table."""
    sample = torch.zeros(_SAMPLE_ROWS, table.shape[1], dtype=table.dtype)
    state = local_table(sample, recipe.train).state()
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values()) // _SAMPLE_ROWS


def _places(parts: list[Part], num_processes: int) -> list[Place]:
    """Return the memories that the parts of one process may be in; on this machine all processes may be together."""
    memory = available_bytes() or 0
    places = [_place("this machine's memory", memory, parts)]
    if num_processes > 1:
        name = f"this machine's memory, divided by {num_processes} processes"
        places.append(_place(name, memory // num_processes, parts))
    if on_host := [part for part in parts if part.on_host]:
        places.append(_place("this machine's memory beside a GPU", memory, on_host))
    cards: dict[str, float] = {}
    for number in range(torch.cuda.device_count()):
        device = torch.device("cuda", number)
        cards[f"this machine's {torch.cuda.get_device_name(device)}"] = torch.cuda.mem_get_info(device)[0]
    on_card = [part for part in parts if not part.on_host]
    return places + [_place(name, int(size), on_card) for name, size in {**cards, **_CARDS}.items()]


def _place(name: str, size: int, parts: list[Part]) -> Place:
    missing = max(0, sum(part.num_bytes for part in parts) - size)
    largest = max(parts, key=lambda part: part.num_bytes)
    alone = "alone " if largest.num_bytes > size else ""
    why = f"{readable_bytes(missing)} too little; {largest.name} {alone}{readable_bytes(largest.num_bytes)}"
    return Place(name, size, missing, why if missing else "")


# --- time ---


def _durations(num_triples: int, recipe: Recipe) -> list[Duration]:
    """Return how long a step takes on every device that a comparable one was measured on."""
    if recipe.model.name != "pairre" or not recipe.sampling.negatives:
        return []
    optimizer = recipe.train.optimizer + (f" {recipe.train.update_rows}" if recipe.train.optimizer == "adam" else "")
    sampling, train = recipe.sampling, recipe.train
    batch = min(train.batch, num_triples)
    wanted = batch * sampling.negatives * recipe.model.dim
    durations = []
    for device in dict.fromkeys(point.device for point in MEASURED_STEPS):
        points = [
            point
            for point in MEASURED_STEPS
            if point.device == device
            and bool(point.chunk_size) == bool(sampling.chunk_size)
            and point.counts_for(recipe.tables.place)
        ]
        if not points:
            continue
        near = min(points, key=lambda point: (point.optimizer != optimizer, abs(math.log(wanted / point.work))))
        same = (near.optimizer, near.dim, near.batch, near.negatives, near.chunk_size)
        measured = same == (optimizer, recipe.model.dim, batch, sampling.negatives, sampling.chunk_size)
        step = near.step_ms * (1.0 if measured else max(1.0, wanted / near.work))
        epoch = 2 * math.ceil(num_triples / batch)  # tails and heads
        hours = step / 3.6e6
        durations.append(Duration(device, step, hours * epoch, hours * train.steps, measured, near))
    return durations
