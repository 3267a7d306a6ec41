"""TorchRec's engine of a table over processes: FBGEMM's fused row-wise Adagrad moves rows where they are, on the CPU.

`settings.torchrec_lacks` says what it cannot do. TorchRec takes seconds to load, so that it is loaded only where it is
used.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import torch
from torch import Tensor

from pairre.kernels.reference.rows import ADAGRAD_EPS
from pairre.settings.recipe import TrainRecipe
from pairre.support.errors import RecipeError
from pairre.support.processes import Processes, exchanged
from pairre.tables.schedule import learning_rates

_TABLE = "entity"
_INSTALL = "pip install --no-deps torchrec==1.8.0 fbgemm-gpu-cpu==1.8.0, then pip install 'pairre[distributed]'"


def is_installed() -> bool:
    """Return whether TorchRec is there, without loading it."""
    return all(find_spec(name) for name in ("torchrec", "fbgemm_gpu"))


def load() -> None:
    """Import TorchRec; a RecipeError says how to install it if it is not there or does not fit this PyTorch."""
    try:
        with _quietly():
            import_module("torchrec.distributed.embedding")
    except (ImportError, OSError, AttributeError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        raise RecipeError(
            f"tables.engine: torchrec does not load ({why}); {_INSTALL}; or set it to exchange"
        ) from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep to ourselves that TorchRec uses what PyTorch will remove one day."""
    logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)  # of each first look-up
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class TorchRecEngine:
    """A row-wise sharded table of TorchRec, of which every rank has a whole block."""

    name: ClassVar[str] = "torchrec"

    def __init__(self, processes: Processes, like: Tensor, recipe: TrainRecipe) -> None:
        """Allocate a table that is `like` a tensor without memory; TorchRec is loaded."""
        self._rates = learning_rates(recipe)
        # A rank without rows could not look any up. Places beyond the table are never asked for.
        padded = -(-len(like) // processes.size) * processes.size
        with _quietly():
            self._module = _sharded_module(processes, padded, like.shape[1])
        self._optimizer = self._module.fused_optimizer
        [weights] = self._module.state_dict().values()
        [state] = self._optimizer.state_dict()["state"].values()
        [square] = state.values()
        held = len(processes.block_of_rows(len(like)))
        self.rows: Tensor = weights.local_shards()[0].tensor[:held]
        self._square: Tensor = square.local_shards()[0].tensor[:held]

    def gather(self, places: Tensor, step: Tensor) -> tuple[Tensor, Any]:
        """Return rows as they are before `step`."""
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

        for group in self._optimizer.param_groups:  # a gradient moves rows by the rate of their look-up
            group["lr"] = float(self._rates[min(int(step), len(self._rates) - 1)])
        self._optimizer.step()  # passes the rate on, and moves nothing
        asked = KeyedJaggedTensor([_TABLE], places, lengths=torch.tensor([len(places)]))
        found = exchanged(lambda: self._module(asked)[_TABLE].values())
        return found.detach(), found

    def update(self, handle: Any, gradient: Tensor, step: Tensor) -> None:  # noqa: ARG002
        """Send gradients to the owners of the rows, who move them."""
        exchanged(handle.backward, gradient)

    def flush(self, step: Tensor) -> None:
        """Do nothing: no update is deferred."""

    def restart(self, step: Tensor) -> None:  # noqa: ARG002
        """Forget the accumulators."""
        self._square.zero_()

    def state(self) -> dict[str, Tensor]:
        """Return the accumulators, as those of `AdagradTable`."""
        return {"square": self._square}


def _sharded_module(processes: Processes, num_rows: int, width: int) -> Any:
    """Return TorchRec's module of one table of float32 that all processes divide."""
    import torch.distributed as dist
    from torch.distributed.optim.apply_optimizer_in_backward import _apply_optimizer_in_backward as fuse
    from torchrec.distributed.comm_ops import set_gradient_division
    from torchrec.distributed.embedding import EmbeddingCollectionSharder
    from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise
    from torchrec.distributed.types import ShardingEnv
    from torchrec.modules.embedding_configs import EmbeddingConfig
    from torchrec.modules.embedding_modules import EmbeddingCollection
    from torchrec.optim import RowWiseAdagrad

    set_gradient_division(False)  # the loss of a rank is a part of the whole, not a mean of its own
    config = EmbeddingConfig(name=_TABLE, embedding_dim=width, num_embeddings=num_rows, feature_names=[_TABLE])
    whole = EmbeddingCollection(tables=[config], device=torch.device("meta"))
    fuse(RowWiseAdagrad, whole.parameters(), {"lr": 0.0, "eps": ADAGRAD_EPS})
    sharder: Any = EmbeddingCollectionSharder()
    plan = construct_module_sharding_plan(
        whole,
        {_TABLE: row_wise()},
        sharder=sharder,
        local_size=processes.size,
        world_size=processes.size,
        device_type="cpu",
    )
    return sharder.shard(whole, plan, ShardingEnv.from_process_group(dist.group.WORLD), torch.device("cpu"))
