"""How much memory a step takes, and the refusal of settings that cannot fit, before anything is allocated.

B positives of a batch, K negatives of each, S sets of negatives, E entities.
"""

from __future__ import annotations

import torch

from pairre.graph import Graph
from pairre.models import Model, model_class
from pairre.settings.recipe import Recipe
from pairre.support.errors import RecipeError
from pairre.support.memory import available_bytes, readable_bytes
from pairre.support.processes import ALONE, Processes
from pairre.tables import OPTIMIZERS

COPIES_OF_ROWS = 4  # rows, their gradients, and what is between them
_CERTAIN_COPIES = {"cpu": 3, "cuda": 1}  # that every step has; measured: 4 to 13 on a CPU, fused kernels have fewer
_BYTES_OF_A_STEP = 32  # the learning rate of a step while the rates of all are computed


def check_memory(graph: Graph, recipe: Recipe, device: torch.device, processes: Processes = ALONE) -> None:
    """Raise a RecipeError if the tables with their optimiser, or the learning rates, alone are beyond memory.

    Each of several processes has a part of the entities, and those of one machine or card share its memory. None may
    allocate anything before all have looked. On the host are entities of a GPU that `tables.place` puts there.

    Otherwise the system might stop the process when it first writes to what it was granted.
    """
    settings, model = recipe.model, model_class(recipe.model.name)
    num_relations = graph.num_relations * (2 if settings.reciprocal else 1)
    num_entities = -(-graph.num_entities // processes.size)
    num = model.num_parameters(num_entities, num_relations, settings.dim)
    on_host = num_entities * model.entity_width(settings.dim) if rows_on_host(recipe, device) else 0
    state = 4 * OPTIMIZERS[recipe.train.optimizer].state_per_number
    advice = "choose fewer, or set tables.place to host" if device.type == "cuda" and not on_host else "choose fewer"
    for numbers, where in ((num - on_host, device), (on_host, None)):
        needed = numbers * ((2 if settings.storage != "float32" else 4) + state)
        what, together = f"model.dim: {settings.dim:,} features", _sharing(where, processes)
        _refuse_beyond(needed, what, "tables and optimiser", where, together, advice)
    steps, together = recipe.train.steps, _sharing(None, processes)
    _refuse_beyond(_BYTES_OF_A_STEP * steps, f"train.steps: {steps:,} steps", "their learning rates", None, together)


def rows_on_host(recipe: Recipe, device: torch.device) -> bool:
    """Return whether a recipe keeps the rows of entities in another memory than that of the device."""
    return recipe.tables.place == "host" and device.type == "cuda"


def check_batch_memory(
    graph: Graph, recipe: Recipe, batch: int, device: torch.device, processes: Processes = ALONE
) -> None:
    """Raise a RecipeError if a batch of B positives for each process is beyond memory by itself.

    Only what a step certainly needs is counted, so that nothing is refused that could be trained.
    """
    model, negatives = model_class(recipe.model.name), recipe.sampling.negatives or graph.num_entities
    needed = _CERTAIN_COPIES.get(device.type, 1) * bytes_of_batch(model, recipe, graph, batch)
    keys = {"train.batch": batch, "sampling.negatives": negatives, "model.dim": recipe.model.dim}
    what = f"{batch:,} positives with {negatives:,} negatives of {recipe.model.dim:,} features"
    key = max(keys, key=lambda key: keys[key])
    _refuse_beyond(needed, f"{key}: {what}", "a batch", device, _sharing(device, processes))


def bytes_of_batch(model: type[Model], recipe: Recipe, graph: Graph, batch: int) -> int:
    """Return the bytes of the rows that a step gathers, and of its scores, each counted once."""
    dim, sampling = recipe.model.dim, recipe.sampling
    negatives = sampling.negatives or graph.num_entities
    num_sets = -(-batch // (sampling.chunk_size or batch)) if sampling.negatives else 1
    drawn = num_sets * negatives
    rows = 2 * batch + (min(drawn, graph.num_entities) if sampling.chunk_size == 1 else drawn)
    entity, relation = _width(model, "entity", dim), _width(model, "relation", dim)
    relations = min(batch, graph.num_relations) if model.matrix_parts and num_sets == 1 else batch
    return 4 * (rows * model.rows_per_entity * entity + relations * relation + batch * negatives)


def _width(model: type[Model], table: str, dim: int) -> int:
    with torch.device("meta"):
        return int(model(1, 1, dim).stored[table].width)


def _sharing(device: torch.device | None, processes: Processes) -> int:
    """Return how many processes share the memory of a device, by default the host."""
    cards = torch.cuda.device_count() if device is not None and device.type == "cuda" else 1
    return -(-processes.local_size // max(1, cards))


def _refuse_beyond(
    needed: int,
    what: str,
    purpose: str,
    device: torch.device | None,
    sharing: int,
    advice: str = "choose fewer",
) -> None:
    """Raise a RecipeError if processes that each need some bytes need more than are free on a device."""
    available = available_bytes(device)
    if available is not None and needed * sharing > available:
        whose = f" of each of {sharing} processes" if sharing > 1 else ""
        raise RecipeError(
            f"{what} need {readable_bytes(needed)} for {purpose}{whose}, and {readable_bytes(available)} are free on "
            f"{device or 'this machine'}; {advice}"
        )
