"""What the author of a score function writes: named parts of rows, and the maths between them.

B triples, E entities, R relations, K candidates of a query, D features. A higher score is always more plausible.

A subclass of `pairre.models.Model` in one file is a complete model. `PairRE` in `pairre.py` is a good example: its
maths takes 20 lines. Everything else (batches, ranking, queries by name) is derived in `scoring.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.graph import Graph, Side
from pairre.kernels import Metric, PairScore, compute_dtype
from pairre.kernels.reference.scores import pair_score
from pairre.support.randomness import key, uniform

Query = tuple[Tensor, Tensor | None]  # the query vector q and its scale w, [B, D] each; None means all ones
Width = int | Callable[[int], int]  # of a part of a row: a multiple of dim, or a function of it
Shape = Callable[[int], tuple[int, ...]]  # of a dense weight, as a function of dim
IdsByTable = dict[str, Tensor]  # ids of rows, by the name of their table
RowsByTable = dict[str, Tensor]
Constraint = Callable[["ScoreFunction", Tensor], Tensor]  # rows as updated → rows as they may be stored
_WEIGHT_ROW = 1024  # dense weights in a row of their table
_DRAWN_AT_ONCE = 1 << 24  # numbers of an initial table
# Every model by name, in order of definition; a class with a `name` of its own registers itself.
REGISTRY: dict[str, type[ScoreFunction]] = {}


class ScoreFunction(torch.nn.Module):
    """The tables of a model and its maths: `prepare`, `tail_query`, `head_query` and a metric.

    Rows have named parts (`entity_parts`, `relation_parts`), which the maths receives as attributes: `r.head_scale`.
    A score compares a query with a candidate by the `metric`: "l1", "l2", "modulus" (complex L1) or "dot"; for any
    other formula set `metric = None` and override `pair_score`.

    The entity table may be stored in half precision; rows are computed with in float32.
    """

    # What every model declares.
    name: ClassVar[str]  # in recipes
    formula: ClassVar[str]  # for tables and documentation
    paper: ClassVar[str]
    metric: Metric | PairScore | None
    relation_parts: ClassVar[dict[str, Width]]
    # What some models declare.
    entity_parts: ClassVar[dict[str, Width]] = {"vector": 1}
    other_metrics: ClassVar[tuple[Metric, ...]] = ()  # that `model.norm` may choose instead
    weight_parts: ClassVar[dict[str, Shape]] = {}  # weights that belong to no row, found as `self.dense`
    patterns: ClassVar[frozenset[str]] = frozenset()  # of relations, that the formula can hold for all entities
    projects_entities: bool = False  # whether a candidate depends on the relation, which `prepare` then gets
    matrix_parts: ClassVar[frozenset[str]] = frozenset()  # of relation rows: what `MatrixProjection` multiplies by
    sides_differ: ClassVar[bool] = False  # whether the score of a triple depends on the side that is queried
    tail_queries_only: ClassVar[bool] = False  # whether there is no `head_query`, so that relations are reciprocal
    trains_on_relations: ClassVar[bool] = True  # whether training can score all relations of a pair of entities
    needs_other_rows: ClassVar[bool] = False  # whether a step gathers `rows_needed` instead of those of its batch
    rows_per_entity: ClassVar[int] = 1  # that a step gathers for an entity of its batch, its own included
    bound_is_unit: ClassVar[bool] = False  # whether stored numbers are in units of the range of the first draw
    linear_in_relation: ClassVar[bool] = False  # whether a score is a dot product of a relation's row with the rest
    num_components: ClassVar[int] = 1  # numbers that make one feature, part after part in a row: 2 if it is complex
    fused_batch_kernel: ClassVar[str | None] = None  # of a backend, that scores a batch with shared negatives
    rule_modes: ClassVar[frozenset[str]] = frozenset()  # how it can obey rules: "tie", "soft"
    dropout: Mapping[str, float] = {}  # layer → probability of setting a feature to 0 in training
    constraints: Mapping[str, Constraint] = {}  # table → what its rows are brought to after each update

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "name" in cls.__dict__:
            REGISTRY[cls.name] = cls

    def __init__(
        self,
        num_entities: int,
        num_relations: int,
        dim: int,
        storage: str = "float32",
        metric: Metric | None = None,
        reciprocal: bool = False,
        dropout: Sequence[float] = (),
        unit_norm: bool = False,
        holds_entities: bool = True,
    ) -> None:
        """Allocate the tables, without drawing them; `settings.validate` has checked that the arguments fit.

        A model that does not hold its entities has a table of them without memory.
        """
        super().__init__()
        self.num_entities, self.num_relations, self.dim = num_entities, num_relations, dim
        self.metric = metric or self.metric
        self.reciprocal = reciprocal or self.tail_queries_only
        # With reciprocal relations, (?, r, t) becomes (t, r⁻¹, ?): candidates are tails, r⁻¹ has a row of its own.
        self.candidate_side: dict[Side, Side] = {"tail": "tail", "head": "tail" if self.reciprocal else "head"}
        self.relation_offset: dict[Side, int] = {"tail": 0, "head": num_relations if self.reciprocal else 0}
        if dropout:
            self.dropout = dict(zip(self.dropout, dropout, strict=True))
        if unit_norm:
            self.constraints = {**self.constraints, "entity": lambda _, rows: F.normalize(rows, dim=-1)}
        self._widths = {"entity": self.widths(self.entity_parts), "relation": self.widths(self.relation_parts)}
        sizes = {table: sum(widths.values()) for table, widths in self._widths.items()}
        elsewhere, dtype = None if holds_entities else "meta", getattr(torch, storage)
        self.entity = torch.nn.Parameter(torch.empty(num_entities, sizes["entity"], dtype=dtype, device=elsewhere))
        self.relation = torch.nn.Parameter(torch.empty(num_relations * (1 + self.reciprocal), sizes["relation"]))
        if self.weight_parts:  # stored as rows, so that the optimisers of rows update them
            self.weights = torch.nn.Parameter(torch.empty(-(-self.num_weights(dim) // _WEIGHT_ROW), _WEIGHT_ROW))
        self._note_storage()
        self.step: Tensor | None = None  # the number of the training step
        self.attached_with: tuple[float, int] | None = None  # bound and seed that `attach` was called with
        self.eval()

    def _apply(self, move: Callable[[Tensor], Tensor], *arguments: Any) -> Self:
        """Move the tables, which `to`, `cpu` and `cuda` do through this method, and note where they are."""
        super()._apply(lambda table: table if table.is_meta else move(table), *arguments)  # type: ignore[no-untyped-call]
        self._note_storage()
        return self

    def _note_storage(self) -> None:
        # Entities may be elsewhere: then their parameter is on the device "meta", and says only how large they are.
        self.device, self.dtype = self.relation.device, compute_dtype(self.entity.dtype)  # that rows are computed in

    # --- the maths of a model ---

    @property
    def waits_for_host(self) -> bool:
        """Whether scores of ids depend on what the host reads from the device, so that no CUDA graph can hold them."""
        return self.projects_entities or self.needs_other_rows

    def prepare(self, e: Any, r: Any) -> Tensor:  # noqa: ARG002
        """Return entity rows as the score uses them on the side `e.side`.

        `e` has the parts of an entity, `r` those of a relation if the model `projects_entities`, else it is None.
        Leading dimensions must broadcast.
        """
        vector: Tensor = e.vector
        return vector

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return what every candidate tail of (h, r, ?) is compared with; `h` comes from `prepare`."""
        raise NotImplementedError

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return what every candidate head of (?, r, t) is compared with; `t` comes from `prepare`."""
        raise NotImplementedError

    def pair_score(self, q: Tensor, w: Tensor | None, c: Tensor) -> Tensor:
        """Return scores of queries and candidates [..., D] whose leading dimensions broadcast."""
        assert self.metric is not None
        return pair_score(self.metric, q, w, c)

    # --- what depends on the graph or the seed ---

    def attach(self, graph: Graph, bound: float, seed: int) -> None:  # noqa: ARG002
        """Take what a model needs beside its stored rows, such as neighbours; called for a new and a loaded model.

        `bound` is the range of the initial draw. Both numbers decide what weights mean, and are stored with them.
        """
        self.attached_with = bound, seed

    def init_from_graph(self, graph: Graph, seed: int) -> None:
        """Change the first rows of a new model, after the uniform draw, where they depend on the training graph."""

    def rows_needed(self, side: Side, ids: IdsByTable) -> tuple[IdsByTable, Callable[[RowsByTable], RowsByTable]]:
        """Return the ids of rows that a step gathers for those of its batch, and a function of the gathered rows.

        Any rows may be gathered; that function returns entity and relation rows for the ids of the batch, in their
        order. Only a model that `needs_other_rows`, such as those of neighbours, defines it.
        """
        raise NotImplementedError

    # --- rules between relations, for models with `rule_modes` ---

    def implied(self, stored: Tensor, bodies: Tensor) -> Tensor:
        """Return relation rows [n, ·] that never score below those of `bodies` [n, K, ·], whatever is stored."""
        raise NotImplementedError

    def aligned(self, stored: Tensor, first: Tensor) -> Tensor:  # noqa: ARG002
        """Return rows of relations that nothing implies, but that share what they imply with those of `first`."""
        return stored

    def rule_penalty(self, inverse: bool, body: Any, conclusion: Any) -> Tensor:
        """Return how far n pairs of relations are from body(x, y) ⇒ conclusion(x, y), or conclusion(y, x), [n]."""
        raise NotImplementedError

    # --- tables ---

    def widths(self, parts: Mapping[str, Width]) -> dict[str, int]:
        """Return the number of columns of each part of a row."""
        return {name: self.dim * width if isinstance(width, int) else width(self.dim) for name, width in parts.items()}

    @property
    def dense(self) -> SimpleNamespace:
        """The dense weights by name, each in its shape."""
        shapes = {name: shape(self.dim) for name, shape in self.weight_parts.items()}
        sizes = [math.prod(shape) for shape in shapes.values()]
        parts = torch.split(self.weights.flatten()[: sum(sizes)], sizes)
        return SimpleNamespace(**{n: part.view(shapes[n]) for n, part in zip(shapes, parts, strict=True)})

    def dense_weights(self) -> Iterator[Tensor]:
        """Yield what the model learns beside the rows of entities and relations; every process has all of it."""
        if self.weight_parts:
            yield self.weights

    def squared_moduli(self, rows: Tensor) -> Tensor:
        """Return the squares of rows [N, D], or of the moduli of their features where these are complex [N, D / 2]."""
        return rows.view(len(rows), self.num_components, -1).square().sum(1)

    @classmethod
    def num_weights(cls, dim: int) -> int:
        """Return how many dense weights there are."""
        return sum(math.prod(shape(dim)) for shape in cls.weight_parts.values())

    @classmethod
    def num_parameters(cls, num_entities: int, num_relations: int, dim: int) -> int:
        """Return how many numbers the model learns on a graph."""
        with torch.device("meta"):
            model = cls(num_entities, num_relations, dim)
        return model.entity.numel() + model.relation.numel() + cls.num_weights(dim)

    @classmethod
    def entity_width(cls, dim: int) -> int:
        """Return how many numbers the row of an entity has."""
        with torch.device("meta"):
            return cls(1, 1, dim).entity.shape[1]

    def initialise(self, bound: float, seed: int) -> None:
        """Draw all tables uniformly in ±bound, the same on every device."""
        for name, parameter in self.named_parameters():
            if parameter.is_meta:  # who holds its rows draws them, by `initial_rows`
                continue
            size = max(1, _DRAWN_AT_ONCE // parameter.shape[1])
            for start in range(0, len(parameter), size):
                rows = parameter.detach()[start : start + size]
                ids = torch.arange(start, start + len(rows), device=rows.device)
                rows.copy_(self.initial_rows(name, ids, bound, seed))

    def initial_rows(self, name: str, ids: Tensor, bound: float, seed: int) -> Tensor:
        """Return the rows of some ids [N] of a table as `initialise` draws them, without the others."""
        table: Tensor = getattr(self, name)
        width = table.shape[1]
        counter = ids[:, None] * width + torch.arange(width, device=ids.device)
        drawn = uniform(key(seed, "init", name), counter).mul_(2 * bound).sub_(bound)
        return self.constrain(name, drawn.to(table.dtype))

    def constrain(self, name: str, rows: Tensor) -> Tensor:
        """Bring rows of a table, in place, to what the model allows, and return them."""
        if name in self.constraints:
            rows.copy_(self.constraints[name](self, rows))
        return rows
