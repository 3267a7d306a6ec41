"""The index of known triples: filters and membership for every side, on any device, without a Python loop.

B queries, K candidates, N triples, P distinct pairs.

Each side is a compressed sparse row structure: the pairs (head, relation), (tail, relation) or (head, tail) that occur,
sorted, and for each the sorted third members. Keys are pair positions, not products of all three sizes, so they fit 64
bits on any graph.
"""

# Kernels carry no types: numba and Triton find them out.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numba
import numpy as np
import torch
from torch import Tensor

from pairre.support.threads import parallel_for

Side = Literal["head", "relation", "tail"]  # the member of a triple that is asked for
COLUMN: dict[Side, int] = {"head": 0, "relation": 1, "tail": 2}
_HOST = torch.device("cpu")
_PAIR: dict[Side, tuple[int, int]] = {"tail": (0, 1), "head": (2, 1), "relation": (0, 2)}


@dataclass(frozen=True, eq=False)
class SideIndex:
    """Known third members of pairs, for one side."""

    pair_keys: Tensor  # [P] int64, first * num_second + second, sorted
    offsets: Tensor  # [P + 1] int64
    members: Tensor  # [N] int32, sorted within a pair
    num_second: int
    num_members: int

    @classmethod
    def build(cls, triples: Tensor, side: Side, num_entities: int, num_relations: int) -> SideIndex:
        """Index [N, 3] triples where they are; repeated ones count once."""
        sizes = (num_entities, num_relations, num_entities)
        first, second = _PAIR[side]
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
        return cls(pair[starts], torch.cat([starts, end]), member, sizes[second], num_members)

    def to(self, device: torch.device | str) -> SideIndex:
        """Return the same index on a device."""
        pair_keys, offsets, members = (t.to(device) for t in (self.pair_keys, self.offsets, self.members))
        return SideIndex(pair_keys, offsets, members, self.num_second, self.num_members)

    def ranges(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Where in `members` the known members of each pair begin and end; both 0 for a pair that never occurs."""
        if len(self.pair_keys) == 0:
            zero = torch.zeros_like(first, dtype=torch.int64)
            return zero, zero
        key = first.long() * self.num_second + second
        position = torch.searchsorted(self.pair_keys, key).clamp_(max=len(self.pair_keys) - 1)
        there = self.pair_keys[position] == key
        return self.offsets[position] * there, self.offsets[position + 1] * there

    def count(self, first: Tensor, second: Tensor) -> Tensor:
        """How many members each pair has."""
        begin, end = self.ranges(first, second)
        return end - begin

    def known(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """All known members of B pairs, flat: (which query, which member)."""
        begin, end = self.ranges(first, second)
        length = end - begin
        row = torch.repeat_interleave(torch.arange(len(length), device=length.device), length)
        within = torch.arange(len(row), device=row.device) - torch.repeat_interleave(length.cumsum(0) - length, length)
        return row, self.members[begin[row] + within].long()

    def contains(self, first: Tensor, second: Tensor, candidates: Tensor) -> Tensor:
        """Which candidates, [K] shared by all pairs or [B, K], form a known triple; bool [B, K]."""
        begin, end = self.ranges(first, second)
        rows = candidates[None] if candidates.dim() == 1 else candidates
        assert len(rows) in (1, len(begin)), f"{len(rows)} rows of candidates for {len(begin)} pairs"
        return self._search_each(begin, end, rows) if rows.device.type == "cpu" else self._search_all(begin, end, rows)

    def _search_each(self, begin: Tensor, end: Tensor, rows: Tensor) -> Tensor:
        """On the CPU: each candidate among the members of its own pair."""
        out = np.zeros((len(begin), rows.shape[1]), np.bool_)
        arrays = (begin.numpy(), end.numpy(), self.members.numpy())
        if len(rows) == 1:
            ordered, order = rows[0].sort()
            parallel_for(_contains_shared, len(begin), *arrays, ordered.numpy(), order.numpy(), out)
        else:
            parallel_for(_contains_own, len(begin), *arrays, rows.contiguous().numpy(), out)
        return torch.from_numpy(out)

    def _search_all(self, begin: Tensor, end: Tensor, rows: Tensor) -> Tensor:
        """On any device: the range of every candidate halves until one place is left."""
        low, high = (place[:, None].expand(-1, rows.shape[1]) for place in (begin, end))
        if len(self.members) == 0:
            return torch.zeros(low.shape, dtype=torch.bool, device=rows.device)
        last = len(self.members) - 1
        for _ in range(len(self.members).bit_length()):
            middle = (low + high) // 2
            below = (self.members[middle.clamp(max=last)] < rows) & (low < high)
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, torch.minimum(middle, high))
        return (low < end[:, None]) & (self.members[low.clamp(max=last)] == rows)


def _sorted(keys: Tensor) -> Tensor:
    """Keys in order; numpy sorts several times as fast as torch on the CPU."""
    return torch.from_numpy(np.sort(keys.numpy())) if keys.device == _HOST else keys.sort().values


def _sorted_by_both(pair: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the order of pairs, then members."""
    if pair.device == _HOST:
        order = torch.from_numpy(np.lexsort((member.numpy(), pair.numpy())))
    else:
        order = member.argsort(stable=True)
        order = order[pair[order].argsort(stable=True)]
    return pair[order], member[order]


def _differs(values: Tensor) -> Tensor:
    """Which values differ from the one before; the first does."""
    result = torch.ones_like(values, dtype=torch.bool)
    torch.ne(values[1:], values[:-1], out=result[1:])
    return result


@numba.njit(cache=True)
def _lower_bound(values, low, high, wanted):
    """The first place in values[low:high] that is not below `wanted`."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(nogil=True, cache=True)
def _contains_own(begin, end, members, rows, out, start, stop):
    """Binary search of each candidate among the members of its own pair: short ranges that stay in cache."""
    for b in range(start, stop):
        for k in range(rows.shape[1]):
            place = _lower_bound(members, begin[b], end[b], rows[b, k])
            out[b, k] = place < end[b] and members[place] == rows[b, k]


@numba.njit(nogil=True, cache=True)
def _contains_shared(begin, end, members, ordered, order, out, start, stop):
    """Candidates that all pairs share, sorted: whichever list is shorter is looked up in the other."""
    num = ordered.shape[0]
    for b in range(start, stop):
        if end[b] - begin[b] > num:
            for k in range(num):
                place = _lower_bound(members, begin[b], end[b], ordered[k])
                out[b, order[k]] = place < end[b] and members[place] == ordered[k]
            continue
        for i in range(begin[b], end[b]):
            place = _lower_bound(ordered, 0, num, members[i])
            while place < num and ordered[place] == members[i]:
                out[b, order[place]] = True
                place += 1


class KnownTriples:
    """A set of triples, asked from any side; each side is built when it is first needed."""

    def __init__(self, triples: Tensor, num_entities: int, num_relations: int, device: torch.device | str = "cpu"):
        self._triples = triples
        self._sizes = (num_entities, num_relations)
        self._device = torch.device(device)
        self._sides: dict[tuple[torch.device, Side], SideIndex] = {}  # one for all devices, so none is built twice

    def to(self, device: torch.device | str) -> KnownTriples:
        """The same set, answering on a device."""
        other = KnownTriples(self._triples, *self._sizes, device)
        other._sides = self._sides
        return other

    def side(self, side: Side) -> SideIndex:
        """The index that answers for the missing `side` of a triple."""
        if (self._device, side) not in self._sides:
            host = self._sides.get((_HOST, side))
            self._sides[self._device, side] = (
                host.to(self._device) if host else SideIndex.build(self._triples.to(self._device), side, *self._sizes)
            )
        return self._sides[self._device, side]

    def known(self, triples: Tensor, side: Side) -> tuple[Tensor, Tensor]:
        """All known members on `side` for B triples whose own member there is ignored: (which query, which member)."""
        return self.side(side).known(*self.pair(triples, side))

    def pair(self, triples: Tensor, side: Side) -> tuple[Tensor, Tensor]:
        """The two members of B triples that `side` is asked for: an entity and the relation, or both entities."""
        first, second = _PAIR[side]
        return triples[:, first].contiguous(), triples[:, second].contiguous()

    def ranges(self, triples: Tensor, side: Side) -> tuple[Tensor, Tensor, Tensor]:
        """Where the known members on `side` of B triples begin and end, [B] each, in the list that comes third."""
        index = self.side(side)
        return *index.ranges(*self.pair(triples, side)), index.members

    def contains(self, triples: Tensor, side: Side, candidates: Tensor) -> Tensor:
        """Which candidates put on `side` of B triples make a known one; bool [B, K]."""
        return self.side(side).contains(*self.pair(triples, side), candidates)

    def count(self, triples: Tensor, side: Side) -> Tensor:
        """How many known triples share all but `side` with each of B triples."""
        return self.side(side).count(*self.pair(triples, side))
