"""What moves the rows of a table between processes and updates them; the plain engine of torch.distributed.

N row places of a step that this rank asks for, n rows that are held here. Places are those of `order.py`: rank r holds
places from r × block on, the last processes fewer, perhaps none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from pairre.models import Model
from pairre.settings import Recipe, torchrec_lacks
from pairre.settings.recipe import TrainRecipe
from pairre.support.processes import Processes
from pairre.tables import torchrec_engine
from pairre.tables.contract import Gathered
from pairre.tables.local import RowConstraint, local_table
from pairre.tables.route import Route


class Engine(Protocol):
    """The rows of a table that are held here, their optimiser, and the way between them and those who ask for them.

    All processes call each method in the same order. A new engine is a class of this protocol, a branch in
    `make_engine`, its name in `TablesRecipe.engine`, and what it cannot do in `settings/validate.py`.
    """

    name: ClassVar[str]  # in recipes
    rows: Tensor  # [n, width] as they are stored

    def gather(self, places: Tensor, step: Tensor) -> tuple[Tensor, Any]:
        """Return rows [N, width] in at least float32 for places [N], and a handle for `update`.

        Places may repeat. None is negative.
        """

    def update(self, handle: Any, gradient: Tensor, step: Tensor) -> None:
        """Move what `gather` returned against the gradient [N, width] of all processes, added up for each row."""

    def flush(self, step: Tensor) -> None:
        """Apply what was deferred, so that every row is as after `step` steps."""

    def restart(self, step: Tensor) -> None:
        """Flush, then forget the state of the optimiser."""

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of the optimiser by name, each with one row for each of `rows`; writing there loads it."""


@dataclass(frozen=True)
class _Handle:
    route: Route
    gathered: Gathered


class ExchangeEngine:
    """Ids, rows and gradients by `all_to_all_single`; the rows have the optimisers of a local table."""

    name: ClassVar[str] = "exchange"

    def __init__(
        self,
        processes: Processes,
        like: Tensor,
        recipe: TrainRecipe,
        constraint: RowConstraint | None,
        device: torch.device,
    ) -> None:
        """Allocate a table that is `like` a meta tensor."""
        self._processes, self._block = processes, -(-len(like) // processes.size)
        self.rows = torch.empty(len(processes.block_of_rows(len(like))), like.shape[1], dtype=like.dtype, device=device)
        self._table = local_table(self.rows, recipe, constraint)
        self.flush, self.restart, self.state = self._table.flush, self._table.restart, self._table.state

    def gather(self, places: Tensor, step: Tensor) -> tuple[Tensor, Any]:
        """Return rows as they are before `step`."""
        route = Route(self._processes, places, self._block)
        gathered = self._table.gather(route.rows, step)
        return route.back(gathered.rows.detach()), _Handle(route, gathered)

    def update(self, handle: Any, gradient: Tensor, step: Tensor) -> None:
        """Send gradients to the owners of the rows, who move them."""
        self._table.update(handle.gathered, handle.route.forth(gradient), step)


def make_engine(processes: Processes, model: Model, recipe: Recipe, constraint: RowConstraint | None) -> Engine:
    """Return the engine of a model's entities that the recipe asks for; its rows are allocated, not drawn."""
    name, device = recipe.tables.engine, model.device
    if name == "auto" and not torchrec_lacks(recipe, type(model), device.type):
        name = "exchange" if processes.any(not torchrec_engine.is_installed()) else "torchrec"
    if name == "torchrec":
        with processes.together():
            torchrec_engine.load()
        return torchrec_engine.TorchRecEngine(processes, model.entity, recipe.train)
    return ExchangeEngine(processes, model.entity, recipe.train, constraint, device)


def fetch(processes: Processes, held: Tensor, places: Tensor, block: int) -> Tensor:
    """Return rows [N, …] of any places from tensors of which every rank holds its block; all processes call it."""
    route = Route(processes, places, block)
    return route.back(held[route.rows])


def put(processes: Processes, held: Tensor, places: Tensor, block: int, values: Tensor) -> None:
    """Store rows [N, …] at any places of tensors of which every rank holds its block; all processes call it."""
    route = Route(processes, places, block)
    held[route.rows] = route.forth(values)
