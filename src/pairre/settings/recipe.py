"""Declaration of every setting of a run: its default, its bounds and its help text.

A recipe is a tree of frozen dataclasses. `parse` makes one from TOML or `--set`, `choose` finds the one for a run, and
`validate` refuses combinations that cannot be trained.
"""

from __future__ import annotations

import copy
import json
import math
import typing
from collections.abc import Iterator, Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal

from pairre.settings import registry


def _key(default: Any, help: str, *, low: float | None = None, choices: Mapping[str, str] | None = None) -> Any:
    """Declare a key with its lower bound, or with a registry of the names that it accepts."""
    return field(default=default, metadata={"help": help, "low": low, "choices": choices})


@dataclass(frozen=True)
class ModelRecipe:
    """Which score function, and how large it is."""

    name: str = _key("pairre", "score function; `pairre models` lists them")
    dim: int = _key(200, "features of an entity vector; more fit large graphs better and cost memory and time", low=1)
    storage: Literal["float32", "float16", "bfloat16"] = _key(
        "float32",
        "number format of the entity table; half precision halves its memory, and is rounded stochastically after each "
        "update. Change it when the table does not fit",
    )
    norm: Literal["own", "l1", "l2"] = _key(
        "own", "norm of a distance: `own` is the model's, `l1` and `l2` are for models that have both"
    )
    reciprocal: bool = _key(
        False,
        "answer (?, r, t) as (t, r⁻¹, ?) with a second row for each relation; often better with 1-vs-all training",
    )
    unit_norm: bool = _key(
        False, "rescale every entity vector to length 1 after each update, as the papers of TransE and DistMult do"
    )
    dropout: tuple[float, ...] = _key(
        (),
        "dropout rates, one for each layer that has dropout (conve: input, maps, hidden); `[]` keeps the model's own",
        low=0,
    )
    init_range: float = _key(
        0.0,
        "initial values are uniform in ± this; 0 means (loss.margin + 2) / model.dim. Products need about 0.1",
        low=0,
    )


@dataclass(frozen=True)
class LossRecipe:
    """How scores become a loss."""

    name: str = _key("self-adversarial", "loss function", choices=registry.LOSSES)
    margin: float = _key(
        6.0,
        "γ: distances below it count as true, so it sets the scale of a distance model and is the first key to tune; "
        "0 suits products. For `margin`, the gap between a positive and a negative",
        low=0,
    )
    temperature: float = _key(
        1.0,
        "α of the self-adversarial weights, where 0 weights negatives equally; `cross-entropy` multiplies scores by it",
        low=0,
    )
    smoothing: float = _key(
        0.0, "label smoothing ε of `k-vs-all`: the part of each label that is spread over all entities", low=0
    )
    relation_weight: float = _key(
        0.0,
        "weight of a second loss that ranks the true relation among all relations of the pair; 0.3 often helps on "
        "graphs with many relations",
        low=0,
    )
    subsampling: bool = _key(
        True,
        "weight a positive by 1 / sqrt(its known tails + its known heads + 6): frequent entities then count less",
    )
    query_balance: float = _key(
        0.0,
        "weight a positive by 1 / (number of known answers to its query) ** this: 0 counts every triple once, 1 counts "
        "every query once. Use it instead of subsampling where a few queries have most of the answers",
        low=0,
    )


@dataclass(frozen=True)
class SamplingRecipe:
    """How negatives are drawn."""

    negatives: int = _key(256, "negatives of each positive, uniform over entities; 0 means all entities", low=0)
    chunk_size: int = _key(
        0,
        "positives that share one set of negatives: 0 the whole batch, which is fastest, n chunks of n, 1 a set for "
        "each positive",
        low=0,
    )
    filter: bool = _key(True, "leave out negatives that form a training triple")
    same_type: bool = _key(
        False,
        "draw negatives of the same type as the entity that they replace; needs a graph with types and `chunk_size` 1",
    )


@dataclass(frozen=True)
class RegularizerRecipe:
    """A penalty on the parameters of a batch's triples."""

    name: str = _key("none", "penalty", choices=registry.REGULARIZERS)
    weight: float = _key(
        0.0, "weight of the penalty beside the loss; tune it first for products, from 0.01 to 0.1", low=0
    )
    query_weight: float = _key(
        1.0, "ω of `dura` and `er`: how much the queries of a triple count beside its entities; from 0.25 to 3", low=0
    )
    equivariance: float = _key(
        0.01,
        "ε of `er`, from −1 to 1: how much alike both queries of a triple should be; 0 is `dura`",
        low=-1,
    )


@dataclass(frozen=True)
class RulesRecipe:
    """How training uses the rules that it gets with `--rules`."""

    mode: Literal["soft", "tie"] = _key(
        "soft",
        "`soft` adds a penalty to the loss; `tie` builds relation vectors so that what a rule implies never scores "
        "below the rule's body",
    )
    weight: float = _key(1e-3, "μ: weight of the penalty of mode `soft`", low=0)


@dataclass(frozen=True)
class DistillRecipe:
    """How a model learns from another run, its teacher, beside the triples."""

    teacher: str = _key("", "run folder whose scores of the negatives the model learns, too; none if empty")
    weight: float = _key(1.0, "weight of the divergence from the teacher beside the loss", low=0)
    temperature: float = _key(
        1.0,
        "T: scores of teacher and model are divided by it before the softmax; above 1 more is learnt about entities "
        "that the teacher finds less likely",
        low=1e-3,
    )


@dataclass(frozen=True)
class TablesRecipe:
    """Where the rows of entities are while a model learns."""

    place: Literal["device", "host"] = _key(
        "device",
        "memory that has the rows of entities and the state of their optimiser: `device` is that of the device that "
        "computes; `host` is that of the machine, which a GPU then reads and writes, for tables that do not fit the "
        "GPU. The results are the same; on a CPU both are one",
    )
    engine: Literal["auto", "exchange", "torchrec"] = _key(
        "auto",
        "what brings rows to those of several processes that need them, and updates them: `exchange` can do every "
        "optimiser and model; `torchrec` is TorchRec's table with row-wise Adagrad on a CPU; `auto` takes TorchRec "
        "where it is installed and can do what the recipe asks for",
    )


@dataclass(frozen=True)
class TrainRecipe:
    """The training loop."""

    seed: int = _key(0, "seed of the initial values, the order of triples and the negatives", low=0)
    batch: int = _key(1024, "positives in a step (at most the triples of train)", low=1)
    steps: int = _key(10_000, "steps in all; steps corrupt tails and heads in turn", low=1)
    epochs: int = _key(
        0, "passes over train for each of the two sides, which decide `train.steps`; 0 leaves it as it is", low=0
    )
    lr: float = _key(1e-3, "learning rate at its highest", low=0)
    schedule: Literal["constant", "step", "linear", "cosine", "trapezoid"] = _key(
        "step",
        "course of the learning rate: `constant`; `step` (a tenth of it after half of the steps, with a fresh "
        "optimiser, as in the PairRE paper); `linear` or `cosine` (falling to 0, mostly the best choice); `trapezoid` "
        "(constant, and linear over the last fifth, for many epochs)",
    )
    warmup: int = _key(0, "steps over which the learning rate rises from 0; raise it if the loss diverges early", low=0)
    optimizer: str = _key("adam", "update rule", choices=registry.OPTIMIZERS)
    tf32: bool = _key(
        False,
        "let a GPU round the factors of matrix products to TF32 in training, which is faster where a step scores all "
        "entities; ranking stays in float32",
    )
    update_rows: Literal["all", "touched"] = _key(
        "all",
        "rows that Adam moves in a step: `all` of them, as `torch.optim.Adam` does, or only those `touched` by the "
        "batch, which is faster on graphs with many entities",
    )
    validate_every: int = _key(0, "steps between validations; 0 means a tenth of all steps", low=0)
    validate_triples: int = _key(5_000, "validation triples ranked each time, drawn once by seed; 0 means all", low=0)
    patience: int = _key(5, "validations without a better MRR before training stops; 0 means never", low=0)
    checkpoint_seconds: float = _key(60.0, "seconds between checkpoints, from which --resume continues", low=0)


@dataclass(frozen=True)
class Recipe:
    """Every setting of a run."""

    model: ModelRecipe = field(default_factory=ModelRecipe)
    loss: LossRecipe = field(default_factory=LossRecipe)
    sampling: SamplingRecipe = field(default_factory=SamplingRecipe)
    regularizer: RegularizerRecipe = field(default_factory=RegularizerRecipe)
    rules: RulesRecipe = field(default_factory=RulesRecipe)
    distill: DistillRecipe = field(default_factory=DistillRecipe)
    tables: TablesRecipe = field(default_factory=TablesRecipe)
    train: TrainRecipe = field(default_factory=TrainRecipe)

    @property
    def init_range(self) -> float:
        """Return the bound of the uniform initial values."""
        return self.model.init_range or (self.loss.margin + 2) / self.model.dim

    @property
    def validate_every(self) -> int:
        """Return the number of steps between validations."""
        return self.train.validate_every or max(1, math.ceil(self.train.steps / 10))

    def to_toml(self) -> str:
        """Return the whole recipe as TOML, which can itself be trained with."""
        lines = []
        for section, values in asdict(self).items():
            lines.append(f"[{section}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
            lines.append("")
        return "\n".join(lines)

    def differences(self, other: Recipe) -> list[str]:
        """Return `section.key: mine, not theirs` for every key that differs."""
        mine, theirs = asdict(self), asdict(other)
        return [
            f"{section}.{key}: {json.dumps(value)}, not {json.dumps(theirs[section][key])}"
            for section, values in mine.items()
            for key, value in values.items()
            if value != theirs[section][key]
        ]


def keys() -> Iterator[tuple[str, Field[Any]]]:
    """Yield every key as `section.key` with its declaration, in order; the help of an open key lists its choices."""
    types = typing.get_type_hints(Recipe)
    for section in fields(Recipe):
        for item in fields(types[section.name]):
            choices = item.metadata["choices"]
            if choices is not None:
                names = "; ".join(f"`{name}` ({help})" for name, help in choices.items())
                item = copy.copy(item)
                item.metadata = MappingProxyType({**item.metadata, "help": f"{item.metadata['help']}: {names}"})
            yield f"{section.name}.{item.name}", item
