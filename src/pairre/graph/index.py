"""The index of known triples: which entities or relations complete a pair, for every side and on any device.

B queries, K candidates, N triples, P distinct pairs.

Each side is a compressed sparse row structure: the pairs (head, relation), (tail, relation) or (head, tail) that occur,
sorted, and for each the sorted third members. Keys are pair positions, not products of all three sizes, so they fit 64
bits on any graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Side = Literal["head", "relation", "tail"]  # the member of a triple that a query leaves open
COLUMN: dict[Side, int] = {"head": 0, "relation": 1, "tail": 2}
_HOST = torch.device("cpu")
PAIR: dict[Side, tuple[int, int]] = {"tail": (0, 1), "head": (2, 1), "relation": (0, 2)}


@dataclass(frozen=True, eq=False)
class SideIndex:
    """Known third members of pairs, for one side."""

    pair_keys: Tensor  # [P] int64, first * num_second + second, sorted
    offsets: Tensor  # [P + 1] int64
    members: Tensor  # [N] int32, sorted within a pair
    num_second: int
    num_members: int
    pair: tuple[int, int]  # columns of the pair

    @classmethod
    def build(cls, triples: Tensor, side: Side, num_entities: int, num_relations: int) -> SideIndex:
        """Return the index of [N, 3] triples, on their device; repeated ones count once."""
        sizes = (num_entities, num_relations, num_entities)
        first, second = PAIR[side]
        num_members = sizes[COLUMN[side]]
        pair = triples[:, first].long() * sizes[second] + triples[:, second]
        member = triples[:, COLUMN[side]]
        if sizes[first] * sizes[second] * num_members < 2**63:
            key = _sorted(pair * num_members + member)
            pair, member = key // num_members, (key % num_members).int()
        else:
            pair, member = _sorted_by_both(pair, member.int())
        new_pair = _differs(pair)
        kept = new_pair | _differs(member)
        pair, member, new_pair = pair[kept], member[kept], new_pair[kept]
        starts = new_pair.nonzero()[:, 0]
        end = torch.tensor([len(pair)], device=pair.device)
        return cls(pair[starts], torch.cat([starts, end]), member, sizes[second], num_members, (first, second))

    def to(self, device: torch.device | str) -> SideIndex:
        """Return the same index on a device."""
        pair_keys, offsets, members = (t.to(device) for t in (self.pair_keys, self.offsets, self.members))
        return SideIndex(pair_keys, offsets, members, self.num_second, self.num_members, self.pair)

    def ranges(self, triples: Tensor) -> tuple[Tensor, Tensor]:
        """Return where in `members` those of the pair of each triple begin and end; both 0 for an unknown pair."""
        first, second = (triples[:, column].long() for column in self.pair)
        if len(self.pair_keys) == 0:
            zero = torch.zeros_like(first)
            return zero, zero
        key = first * self.num_second + second
        position = torch.searchsorted(self.pair_keys, key).clamp_(max=len(self.pair_keys) - 1)
        found = self.pair_keys[position] == key
        return self.offsets[position] * found, self.offsets[position + 1] * found

    def count(self, triples: Tensor) -> Tensor:
        """Return how many known triples share the pair of each of B triples."""
        begin, end = self.ranges(triples)
        return end - begin

    def known(self, triples: Tensor) -> tuple[Tensor, Tensor]:
        """Return all known members for B triples, flat: (which triple, which member)."""
        begin, end = self.ranges(triples)
        length = end - begin
        row = torch.repeat_interleave(torch.arange(len(length), device=length.device), length)
        within = torch.arange(len(row), device=row.device) - (length.cumsum(0) - length)[row]  # a GPU waits only once
        return row, self.members[begin[row] + within].long()

    def contains(self, triples: Tensor, candidates: Tensor) -> Tensor:
        """Return which candidates, [K] for all triples or [B, K], form a known triple with its pair; bool [B, K]."""
        begin, end = self.ranges(triples)
        rows = candidates[None] if candidates.dim() == 1 else candidates
        assert len(rows) in (1, len(begin)), f"{len(rows)} rows of candidates for {len(begin)} triples"
        if len(self.members) == 0:
            return torch.zeros(len(begin), rows.shape[1], dtype=torch.bool, device=rows.device)
        low, high = (bound[:, None].expand(-1, rows.shape[1]) for bound in (begin, end))
        last = len(self.members) - 1
        for _ in range(len(self.members).bit_length()):  # the range of every candidate halves until one place is left
            middle = (low + high) // 2
            below = (self.members[middle.clamp(max=last)] < rows) & (low < high)
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, torch.minimum(middle, high))
        return (low < end[:, None]) & (self.members[low.clamp(max=last)] == rows)


def _sorted(keys: Tensor) -> Tensor:
    """Return keys in order; numpy sorts several times as fast as torch on the CPU."""
    return torch.from_numpy(np.sort(keys.numpy())) if keys.device == _HOST else keys.sort().values


def _sorted_by_both(pair: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in the order of pairs, then members."""
    if pair.device == _HOST:
        order = torch.from_numpy(np.lexsort((member.numpy(), pair.numpy())))
    else:
        order = member.argsort(stable=True)
        order = order[pair[order].argsort(stable=True)]
    return pair[order], member[order]


def _differs(values: Tensor) -> Tensor:
    """Return which values differ from the one before; the first does."""
    result = torch.ones_like(values, dtype=torch.bool)
    torch.ne(values[1:], values[:-1], out=result[1:])
    return result


class KnownTriples:
    """A set of triples, indexed for any side; each index that is not `stored` is built when it is first needed."""

    def __init__(
        self,
        triples: Tensor | Callable[[], Tensor],
        num_entities: int,
        num_relations: int,
        stored: Mapping[Side, SideIndex] | None = None,
    ) -> None:
        self._triples = triples  # or what puts them together when they are needed
        self._sizes = (num_entities, num_relations)
        self._indexes = {(_HOST, side): index for side, index in (stored or {}).items()}

    def side(self, side: Side, device: torch.device = _HOST) -> SideIndex:
        """Return the index that answers for the missing `side` of a triple, on a device."""
        if (device, side) not in self._indexes:
            host = self._indexes.get((_HOST, side))
            self._indexes[device, side] = host.to(device) if host else self._build(side, device)
        return self._indexes[device, side]

    def _build(self, side: Side, device: torch.device) -> SideIndex:
        triples = self._triples() if callable(self._triples) else self._triples
        return SideIndex.build(triples.to(device), side, *self._sizes)
