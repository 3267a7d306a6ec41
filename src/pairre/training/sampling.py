"""Which triples a step learns from, which side it corrupts, with which negatives, and which of them must not count.

B positives a step, K negatives of each, S sets of negatives, E entities, R relations. Everything is a function of
(seed, step), the same on every device.

To draw negatives in another way, change `Sampler.draw`. It gets uniform integers below `BatchPlan.negatives_below` and
maps them to entities, as it does for `sampling.same_type`; a table of entities to draw from, some of them repeated,
would make frequent ones more likely. `_lay_out` decides how rows of negatives are gathered and shared, and
`Sampler.targets` marks known triples among them. The setting is a key of `SamplingRecipe`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pairre.graph import Graph, Side
from pairre.graph.index import COLUMN, SideIndex
from pairre.kernels import BatchPlan, backend
from pairre.kernels.reference.batch import Weights
from pairre.models import Chunked, Model, NegativeLayout, Own, RelationGroups, Shared
from pairre.settings.recipe import LossRecipe, Recipe
from pairre.support.errors import RecipeError
from pairre.support.processes import ALONE, Processes
from pairre.support.randomness import key

STEP_SIDES: tuple[Side, Side] = ("tail", "head")  # corrupted by even and by odd steps


@dataclass(frozen=True)
class Batch:
    """What one step learns from: a whole batch, or this rank's part of it."""

    side: Side  # that is corrupted
    size: int  # positives of the whole batch
    total_weight: Tensor  # of the whole batch, a scalar
    anchor: Tensor  # [B] int64: the entity that is kept
    true: Tensor  # [B] int64: the entity that negatives replace
    relation: Tensor  # [B] int64
    weight: Tensor  # [B]
    negative_ids: Tensor  # [S, K] int64: sets of negatives, each shared by consecutive positives
    entity_ids: Tensor  # [2 B + M] int64: anchors, true entities, and each row of negatives that is gathered
    relation_ids: Tensor  # int64, rows of the relation table: [B], or [G] where each of its groups has one
    layout: NegativeLayout  # which gathered rows are the negatives of which positive


@dataclass(frozen=True)
class Targets:
    """What the loss knows about a batch."""

    weight: Tensor  # [B], sums to 1 over the whole batch
    known: (
        Tensor | None
    )  # [B, K] bool: negatives that are true triples; losses mask them, k-vs-all takes them as labels
    known_relations: Tensor | None  # [B, R] bool: relations that hold between the two entities


class Sampler:
    """Draws the batch of any step, given its number alone."""

    def __init__(
        self,
        graph: Graph,
        recipe: Recipe,
        model: type[Model],
        device: torch.device,
        learnt: Tensor | None = None,
        learnt_weights: Tensor | None = None,
        *,
        processes: Processes = ALONE,
    ) -> None:
        """Prepare batches of the triples of train, or of those `learnt` [N, 3]; all of train counts as known.

        The weights are those of train, or `learnt_weights` [N]. Each of several `processes` draws whole batches
        and keeps its part.
        """
        self.filter, self.num_negatives = recipe.sampling.filter, recipe.sampling.negatives  # 0 means all entities
        self.kernels = backend(device.type)
        self.num_entities, self.num_relations = graph.num_entities, graph.num_relations
        self.indexes = {side: graph.known_train.side(side, device) for side in STEP_SIDES}
        if learnt is None:
            learnt_weights = graph.weights.get("train")
        triples, self.triple_weights = _positives(graph.train if learnt is None else learnt, learnt_weights, device)
        k_vs_all = recipe.loss.name == "k-vs-all"
        positives = dict.fromkeys(STEP_SIDES, triples)
        if k_vs_all:
            positives = {side: self._one_triple_per_query(side, learnt) for side in STEP_SIDES}
        self.batch_size = min(recipe.train.batch, *map(len, positives.values()))
        self.chunk_size = recipe.sampling.chunk_size or self.batch_size
        if self.num_negatives == 0:
            self.chunk_size = self.batch_size
            self.all_entities = torch.arange(graph.num_entities, device=device)[None]
        shared = self.chunk_size >= self.batch_size > graph.num_relations
        self.group_relations = model.projects_entities and shared
        self.rows_of_groups = self.group_relations and bool(model.matrix_parts)
        self.type_ranges = _type_ranges(graph).to(device) if recipe.sampling.same_type else None
        self.all_relations = torch.arange(graph.num_relations, device=device)
        self.relation_sides = relation_sides(recipe, model)
        reciprocal = recipe.model.reciprocal or model.tail_queries_only
        self.relation_offset = {"tail": 0, "head": graph.num_relations if reciprocal else 0}
        # Rows of the relation table. Inverse relations are wrong answers, too, where known triples may be negatives.
        every = torch.arange(graph.num_relations * (2 if reciprocal and not self.filter else 1), device=device)
        self.relation_candidates = {
            side: every + (offset if self.filter else 0) for side, offset in self.relation_offset.items()
        }
        if self.relation_sides:
            self.indexes["relation"] = graph.known_train.side("relation", device)
        self.plans = self._plans(graph, recipe, positives, k_vs_all)
        self.part, self.part_of_sets = self._parts(processes)

    def _plans(
        self, graph: Graph, recipe: Recipe, positives: dict[Side, Tensor], k_vs_all: bool
    ) -> dict[Side, BatchPlan]:
        num_sets = -(-self.batch_size // self.chunk_size)
        on_disk = graph.stored is not None and positives["tail"].device.type == "cpu"
        weights = self._weights_on_demand if on_disk else self._weights
        tails = weights(positives["tail"], "tail", recipe.loss)
        same = not k_vs_all and recipe.loss.query_balance == 0  # then the weights of both sides are stored once
        heads = tails if same else weights(positives["head"], "head", recipe.loss)
        return {
            side: BatchPlan(
                triples=positives[side],
                weight=weight,
                batch_size=self.batch_size,
                num_negatives=num_sets * self.num_negatives,
                negatives_below=graph.num_entities,
                order_stream=key(recipe.train.seed, "order"),
                negatives_stream=key(recipe.train.seed, "negatives"),
            )
            for side, weight in zip(STEP_SIDES, (tails, heads), strict=True)
        }

    def _parts(self, processes: Processes) -> tuple[slice, slice]:
        """Return the positives of a batch that are this rank's, and the sets of negatives that only these have."""
        if self.chunk_size >= self.batch_size:  # one set, which all share
            parts, key, num = processes.even_slice(self.batch_size), "train.batch", self.batch_size
            found = parts, slice(None)
        else:
            key, num = "sampling.chunk_size", -(-self.batch_size // self.chunk_size)
            parts = processes.even_slice(num)
            found = slice(parts.start * self.chunk_size, min(parts.stop * self.chunk_size, self.batch_size)), parts
        if num < processes.size:
            what = "positives" if key == "train.batch" else "sets of negatives"
            raise RecipeError(f"{key}: a batch has {num} {what}, and each of {processes.size} processes needs one")
        return found

    def _one_triple_per_query(self, side: Side, learnt: Tensor | None) -> Tensor:
        """Return one triple [P, 3] for each query of a side; its row of labels has the other answers.

        It is the same one in every epoch, so that a regulariser sees no other.
        """
        index = self.indexes[side]
        if learnt is not None:
            learnt = learnt.to(index.members.device)
            index = SideIndex.build(learnt, side, self.num_entities, self.num_relations)
        pairs = torch.stack([index.pair_keys // index.num_second, index.pair_keys % index.num_second], 1)
        triples = torch.cat([pairs.int(), index.members[index.offsets[:-1], None]], 1)
        return triples if side == "tail" else triples.flip(1)

    def _weights(self, triples: Tensor, side: Side, recipe: LossRecipe) -> Tensor:
        """Return the weight of each positive in steps that corrupt `side`."""
        parts = []
        for part in torch.split(triples, 1 << 24):
            weight = torch.ones(len(part), dtype=torch.float64, device=part.device)  # the same on every device
            if recipe.subsampling:
                # As in RotatE's released code, each of the two counts starts from 3.
                weight /= (self.indexes["tail"].count(part) + self.indexes["head"].count(part) + 6).double().sqrt()
            if recipe.query_balance:
                weight /= self.indexes[side].count(part).double().pow(recipe.query_balance)
            parts.append(weight.float())
        result = torch.cat(parts)
        return result if self.triple_weights is None else result * self.triple_weights

    def _weights_on_demand(self, triples: Tensor, side: Side, recipe: LossRecipe) -> Weights:
        """Return what computes the weights of those positives that are asked for, so that nothing grows with them."""
        return _WeightsOnDemand(triples, lambda chosen: self._weights(chosen, side, recipe))

    def draw(self, side: Side, step: Tensor) -> Batch:
        """Return the batch of a step, which corrupts `side`: tails on even steps, heads on odd ones."""
        plan = self.plans[side]
        drawn = self.kernels.draw_batch(plan, COLUMN[side], step)
        anchor, true, flat = torch.split(drawn.entities, [self.batch_size, self.batch_size, plan.num_negatives])
        candidates = flat.view(-1, self.num_negatives) if self.num_negatives else self.all_entities
        if self.type_ranges is not None:  # a number below E, scaled to the range of a type
            first, size = self.type_ranges[:, true, None]
            candidates = first + candidates * size // plan.negatives_below
        anchor, true, relation, weight = (x[self.part] for x in (anchor, true, drawn.relation, drawn.weight))
        candidates = candidates[self.part_of_sets]
        relations, groups = relation, None
        if self.group_relations:
            relations, groups = relation_groups(relation, self.num_relations, with_rows=self.rows_of_groups)
        if offset := self.relation_offset[side]:
            relations = relations + (offset * (relations >= 0) if self.rows_of_groups else offset)
        rows, negatives = self._lay_out(candidates, groups)
        entity_ids = torch.cat([anchor, true, rows])
        whole = self.batch_size, drawn.weight.sum()
        return Batch(side, *whole, anchor, true, relation, weight, candidates, entity_ids, relations, negatives)

    def _lay_out(self, candidates: Tensor, groups: RelationGroups | None) -> tuple[Tensor, NegativeLayout]:
        """Return the ids of negatives whose rows are gathered, and how they belong to positives."""
        if self.chunk_size == 1:  # rows that several positives drew are gathered once
            rows, positions = distinct(candidates, self.num_entities)
            return rows, Own(positions)
        if len(candidates) > 1:
            return candidates.flatten(), Chunked(len(candidates), self.chunk_size)
        return candidates[0], Shared(groups)

    def targets(self, batch: Batch) -> Targets:
        """Return what the loss knows about a batch: normalised weights, and which candidates are known triples."""
        known = relations = None
        if self.filter:
            index = self.indexes[batch.side]
            known = self.kernels.known_mask(index, batch.anchor, batch.relation, batch.negative_ids, self.chunk_size)
        elif self.num_negatives == 0:
            known = batch.negative_ids == batch.true[:, None]
        if batch.side in self.relation_sides:
            head_and_tail = (batch.anchor, batch.true) if batch.side == "tail" else (batch.true, batch.anchor)
            if self.filter:
                index = self.indexes["relation"]
                relations = self.kernels.known_mask(index, *head_and_tail, self.all_relations[None], self.batch_size)
            else:
                own = batch.relation + self.relation_offset[batch.side]
                relations = self.relation_candidates[batch.side] == own[:, None]
        return Targets(batch.weight / batch.total_weight, known, relations)


class _WeightsOnDemand:
    """The weight of each positive, computed when it is drawn."""

    def __init__(self, triples: Tensor, compute: Callable[[Tensor], Tensor]) -> None:
        self._triples, self._compute = triples, compute

    def __getitem__(self, positions: Tensor) -> Tensor:
        return self._compute(self._triples[positions])


def relation_sides(recipe: Recipe, model: type[Model]) -> tuple[Side, ...]:
    """Return the sides whose steps corrupt relations, too.

    Where both sides give a triple the same score, one of them is enough, which is half of the work.
    """
    if not recipe.loss.relation_weight:
        return ()
    reciprocal = recipe.model.reciprocal or model.tail_queries_only
    return STEP_SIDES if reciprocal or model.sides_differ else STEP_SIDES[:1]


def distinct(ids: Tensor, num_ids: int) -> tuple[Tensor, Tensor]:
    """Return each id once, filled up with −1 to a size that does not depend on them, and the position of each there."""
    flat = ids.flatten()
    size = min(len(flat), num_ids)
    if num_ids <= 8 * len(flat):  # then a pass over every id costs less than a sort
        present = flat.new_zeros(num_ids).index_fill_(0, flat, 1)
        slot = present.cumsum(0) - 1
        every = torch.arange(num_ids, device=flat.device)
        rows = flat.new_full((size + 1,), -1).scatter_(0, torch.where(present > 0, slot, size), every)
        return rows[:size], slot[flat].view(ids.shape)
    ordered, order = flat.sort(stable=True)
    slot = torch.cat([flat.new_zeros(1), (ordered[1:] != ordered[:-1]).long()]).cumsum(0)
    rows = flat.new_full((size,), -1).scatter_(0, slot, ordered)
    return rows, torch.empty_like(flat).scatter_(0, order, slot).view(ids.shape)


def relation_groups(relations: Tensor, num_relations: int, *, with_rows: bool) -> tuple[Tensor, RelationGroups]:
    """Return the relations [B] whose rows are gathered and their groups; `with_rows`, each group has one, [G]."""
    rows, number = distinct(relations, num_relations)
    if with_rows:
        return rows, RelationGroups(number)
    positions = torch.arange(len(relations), device=relations.device)
    first = torch.zeros_like(rows).scatter_reduce_(0, number, positions, "amin", include_self=False)
    return relations, RelationGroups(number, first)


def _positives(triples: Tensor, weights: Tensor | None, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return the triples to learn from on a device, and their weights with a mean of 1 if they have some.

    Those of weight 0 are known triples, but no positives.
    """
    if weights is None or not weights.any():
        return triples.to(device), None
    counts = weights > 0
    values = weights[counts].double()  # on the host, so that every device has the same
    values = (values / values.mean()).clamp(min=1e-30)  # so that the weights of no batch add up to 0
    return triples[counts].to(device), values.float().to(device)


def _type_ranges(graph: Graph) -> Tensor:
    """Return where the type of each entity begins, and how many entities it has; [2, E] int64."""
    first = torch.tensor(list(graph.types.values()))
    sizes = torch.diff(first, append=torch.tensor([graph.num_entities]))
    return torch.stack([first, sizes]).repeat_interleave(sizes, 1)
