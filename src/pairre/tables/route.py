"""The way between the processes that ask for rows and those that have them: one exchange of ids, then rows either way.

N rows that this rank asks for, M rows that this rank is asked for, by all processes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pairre.support.processes import Processes, exchanged


class Route:
    """Who asks whom for which rows, by places of which each rank has a block of equal size."""

    def __init__(self, processes: Processes, places: Tensor, block: int) -> None:
        import torch.distributed as dist

        owner = places // block
        self._order = owner.argsort(stable=True)
        sent = torch.bincount(owner, minlength=processes.size).cpu()
        received = torch.empty_like(sent)
        exchanged(dist.all_to_all_single, received, sent)
        self._asks, self._asked = sent.tolist(), received.tolist()
        self.rows = self.forth(places) - processes.rank * block  # [M]: of this rank's block, in the order of who asks

    def forth(self, values: Tensor) -> Tensor:
        """Send values [N, …], one for each row that is asked for, to its owner; return those received, [M, …]."""
        return _exchange(values[self._order], self._asks, self._asked)

    def back(self, values: Tensor) -> Tensor:
        """Send values [M, …], one for each of `rows`, to who asked; return those received [N, …] as they were asked."""
        received = _exchange(values, self._asked, self._asks)
        return torch.empty_like(received).index_copy_(0, self._order, received)


def _exchange(values: Tensor, out: list[int], into: list[int]) -> Tensor:
    """Return the rows [sum(into), …] that all processes send; as bytes, because gloo does not know every type.

    gloo sends from the host's memory, so that rows on another device pass through it.
    """
    import torch.distributed as dist

    shape = sum(into), *values.shape[1:]
    received = torch.empty(shape, dtype=values.dtype, pin_memory=values.is_cuda)
    exchanged(dist.all_to_all_single, _bytes(received), _bytes(values.cpu().contiguous()), into, out)
    return received.to(values.device)


def _bytes(values: Tensor) -> Tensor:
    """Return the memory of contiguous values [N, …] as [N, bytes]."""
    return (values.flatten(1) if values.dim() > 1 else values[:, None]).view(torch.uint8)
