"""TOML → frozen dataclasses: every setting of a run, its default, its bounds and its help text are declared only here.

Three layers, later wins: the defaults below (some picked from the size of the graph), a recipe file, `--set key=value`.
"""

from __future__ import annotations

import json
import logging
import math
import tomllib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pairre.graph import Graph
from pairre.support.errors import RecipeError, suggest

_log = logging.getLogger(__name__)

# Keys under names that they had in earlier versions: recipe files, `--set` and run folders may still use them.
OLD_NAMES = {
    "model.unit": "model.unit_norm",
    "loss.relations": "loss.relation_weight",
    "loss.weighting": "loss.subsampling",
    "loss.flattening": "loss.query_balance",
    "sampling.share": "sampling.chunk_size",
    "sampling.typed": "sampling.same_type",
    "train.rows": "train.update_rows",
}


def _key(default: Any, help: str, *, low: float | None = None) -> Any:
    return field(default=default, metadata={"help": help, "low": low})


@dataclass(frozen=True)
class ModelRecipe:
    """Which score function, and how large."""

    name: str = _key("pairre", "the score function: `pairre models` lists them")
    dim: int = _key(200, "features of an entity vector", low=1)
    storage: Literal["float32", "float16", "bfloat16"] = _key(
        "float32", "how the entity table is kept; half precision halves it, and is rounded at random after each step"
    )
    norm: Literal["own", "l1", "l2"] = _key(
        "own", "the norm of a distance: the `own` one of the model, or where it has both `l1` or `l2`"
    )
    reciprocal: bool = _key(
        False, "ask (?, r, t) as (t, r⁻¹, ?) with a second row for each relation, as 1-vs-all training often does"
    )
    unit_norm: bool = _key(False, "keep every entity's row at length 1, as the papers of TransE and DistMult do")
    dropout: tuple[float, ...] = _key(
        (),
        "shares set to 0 in training, one for each layer that has them (conve: input, maps, hidden); `[]`: its own",
        low=0,
    )
    init_range: float = _key(0.0, "tables start uniform in ± this; 0 means (loss.margin + 2) / model.dim", low=0)


@dataclass(frozen=True)
class LossRecipe:
    """From scores to a number."""

    name: Literal["self-adversarial", "cross-entropy", "margin", "logistic", "k-vs-all"] = _key(
        "self-adversarial",
        "`self-adversarial` (the paper's), `cross-entropy` (softmax over the positive and its negatives), "
        "`margin` (ranking), `logistic`, or `k-vs-all` (binary over all entities, each question once)",
    )
    margin: float = _key(
        6.0, "γ: distances below it count as true (0 suits products); the gap asked for by `margin`", low=0
    )
    temperature: float = _key(
        1.0,
        "α of the self-adversarial weights, 0 weighs negatives equally; `cross-entropy` multiplies scores by it",
        low=0,
    )
    smoothing: float = _key(0.0, "ε of `k-vs-all`: how much of each label goes to all entities alike", low=0)
    relation_weight: float = _key(
        0.0, "weight of the same loss over all relations between the two entities, beside that over entities", low=0
    )
    subsampling: bool = _key(True, "weigh a positive by 1 / sqrt(its known tails + its known heads + 6)")
    query_balance: float = _key(
        0.0,
        "weigh a positive by 1 / (known answers to what its step asks) ** this; with 1, questions count alike",
        low=0,
    )


@dataclass(frozen=True)
class SamplingRecipe:
    """From a positive to its negatives."""

    negatives: int = _key(256, "negatives of a positive, uniform over entities; 0 means all entities", low=0)
    chunk_size: int = _key(
        0, "how many positives share one set of negatives: 0 the whole batch, 1 none, n chunks of n", low=0
    )
    filter: bool = _key(True, "leave out negatives that form a training triple")
    same_type: bool = _key(
        False, "draw negatives of the type of the entity they replace, where the graph has types; needs `chunk_size` 1"
    )


@dataclass(frozen=True)
class RegularizerRecipe:
    """A penalty on the parameters of a batch's triples."""

    name: Literal["none", "l2", "n3"] = _key("none", "`none`, `l2` (squares) or `n3` (cubes of absolute values)")
    weight: float = _key(0.0, "its weight beside the loss", low=0)


@dataclass(frozen=True)
class RulesRecipe:
    """How training follows the rules that it is given."""

    mode: Literal["soft", "tie"] = _key(
        "soft", "`soft` (a penalty beside the loss) or `tie` (what a rule implies never scores below the rule's body)"
    )
    weight: float = _key(1e-3, "μ of the penalty", low=0)


@dataclass(frozen=True)
class TrainRecipe:
    """The loop."""

    seed: int = _key(0, "seed of initialisation, order and negatives", low=0)
    batch: int = _key(1024, "positives a step (at most the triples of train)", low=1)
    steps: int = _key(10_000, "steps in all; heads and tails are corrupted in turn", low=1)
    lr: float = _key(1e-3, "learning rate, at its highest", low=0)
    schedule: Literal["constant", "step", "linear", "cosine"] = _key(
        "step",
        "`constant`; `step` (a tenth after half of the steps, the optimiser starting afresh, as in the paper); "
        "`linear` or `cosine` to 0",
    )
    warmup: int = _key(0, "steps over which the rate rises from 0", low=0)
    optimizer: Literal["adam", "adagrad"] = _key("adam", "`adam` or row-wise `adagrad` (one accumulator a row)")
    update_rows: Literal["all", "touched"] = _key(
        "all", "`all`: Adam moves every row each step; `touched`: only the rows of the batch, for large graphs"
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
    train: TrainRecipe = field(default_factory=TrainRecipe)

    @property
    def init_range(self) -> float:
        """The bound of the uniform initialisation."""
        return self.model.init_range or (self.loss.margin + 2) / self.model.dim

    @property
    def validate_every(self) -> int:
        """Steps between validations."""
        return self.train.validate_every or max(1, math.ceil(self.train.steps / 10))

    def to_toml(self) -> str:
        """The whole recipe as TOML, which can itself be run."""
        lines = []
        for section, values in asdict(self).items():
            lines.append(f"[{section}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
            lines.append("")
        return "\n".join(lines)

    def differences(self, other: Recipe) -> list[str]:
        """`section.key: mine, not theirs` for every key that differs."""
        mine, theirs = asdict(self), asdict(other)
        return [
            f"{section}.{key}: {json.dumps(value)}, not {json.dumps(theirs[section][key])}"
            for section, values in mine.items()
            for key, value in values.items()
            if value != theirs[section][key]
        ]


def keys() -> Iterable[tuple[str, Field[Any]]]:
    """Every key as `section.key` with its declaration, in order: the docs and the tests walk through it."""
    for section in fields(Recipe):
        for item in fields(_section_type(section.name)):
            yield f"{section.name}.{item.name}", item


def resolve(graph: Graph, recipe: str | Path | Recipe | None = None, overrides: Iterable[str] = ()) -> Recipe:
    """The recipe of a run: defaults for this graph, or a recipe file or name; then `key=value` overrides."""
    if recipe is None:
        base = default_recipe(graph)
    elif isinstance(recipe, Recipe):
        base = recipe
    else:
        base = load_recipe(recipe)
    resolved = override(base, overrides)
    model, loss, sampling = resolved.model, resolved.loss, resolved.sampling
    weighted = loss.subsampling or loss.query_balance
    if loss.name == "k-vs-all" and (sampling.negatives or weighted or not sampling.filter):
        raise RecipeError(
            "loss.name: k-vs-all asks each question once, of all entities: "
            "set sampling.negatives and loss.query_balance to 0, loss.subsampling to false and sampling.filter to true"
        )
    if sampling.same_type and not graph.types:
        raise RecipeError(f"sampling.same_type: {graph.name} has no types of entities")
    if sampling.same_type and (sampling.chunk_size != 1 or not sampling.negatives):
        raise RecipeError("sampling.same_type: each positive needs negatives of its own: set sampling.chunk_size to 1")
    if loss.smoothing >= 1:
        raise RecipeError(f"loss.smoothing: a share below 1 expected, not {loss.smoothing}")
    if any(share >= 1 for share in model.dropout):
        raise RecipeError(f"model.dropout: shares below 1 expected, not {max(model.dropout)}")
    return resolved


def default_recipe(graph: Graph) -> Recipe:
    """Settings for a graph nobody has tuned, from its size alone."""
    num_train = len(graph.train)
    small, medium = num_train < 20_000, num_train < 200_000
    return Recipe(
        loss=LossRecipe(margin=6.0 if small else 9.0, subsampling=False, query_balance=0.5),
        sampling=SamplingRecipe(negatives=min(256, graph.num_entities)),
        train=TrainRecipe(
            batch=min(1024, num_train),
            steps=3_000 if small else 10_000 if medium else 30_000,
            lr=3e-3 if medium else 1e-3,
            schedule="linear",
            update_rows="all" if graph.num_entities <= 50_000 else "touched",
        ),
    )


def recipe_names() -> list[str]:
    """Names of the recipes that come with the package."""
    folder = resources.files("pairre.settings") / "recipes"
    return sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml"))


def recipe_purposes() -> dict[str, str]:
    """What each recipe that comes with the package is for: the comment that it begins with."""
    folder = resources.files("pairre.settings") / "recipes"
    texts = {name: (folder / f"{name}.toml").read_text(encoding="utf-8") for name in recipe_names()}
    return {name: text.splitlines()[0].removeprefix("#").strip() for name, text in texts.items()}


def load_recipe(source: str | Path, *, note_old_names: bool = True) -> Recipe:
    """Return a recipe from a TOML file, or by name from those that come with the package.

    A key under an old name is logged, unless `note_old_names` is false: nobody edits the recipe of a run folder.
    """
    path = Path(source)
    if path.is_file():
        text, where = path.read_bytes(), str(path)
    elif str(source) in recipe_names():
        text, where = (
            (resources.files("pairre.settings") / "recipes" / f"{source}.toml").read_bytes(),
            f"recipe {source}",
        )
    else:
        names = recipe_names()
        raise RecipeError(
            f"{source}: no such recipe file or name{suggest(str(source), names)}; names: {', '.join(names)}"
        )
    try:
        values = tomllib.loads(text.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{where}: not valid TOML: {error}") from error
    try:
        return from_values(values, note_old_names=note_old_names)
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from None


def from_values(values: Mapping[str, Any], base: Recipe | None = None, *, note_old_names: bool = True) -> Recipe:
    """Nested values over a base recipe; unknown keys and wrong types are refused by path."""
    result = base or Recipe()
    sections = [f.name for f in fields(Recipe)]
    for section, entries in values.items():
        if section not in sections:
            raise RecipeError(
                f"{section}: unknown section{suggest(section, sections)}; sections: {', '.join(sections)}"
            )
        if not isinstance(entries, Mapping):
            raise RecipeError(f"{section}: a section of keys expected, not {_kind(entries)}")
        part = getattr(result, section)
        known = {f.name: f for f in fields(part)}
        for key, value in entries.items():
            path = f"{section}.{key}"
            if path == "train.average":
                if value != 0:
                    raise RecipeError(
                        "train.average: removed; let the learning rate fall, as with train.schedule=linear"
                    )
                continue
            if path in OLD_NAMES:
                if note_old_names:
                    _log.warning("%s is now %s", path, OLD_NAMES[path])
                path = OLD_NAMES[path]
                key = path.removeprefix(f"{section}.")
            if key not in known:
                raise RecipeError(f"{path}: unknown key{suggest(key, known)}")
            hint = typing.get_type_hints(type(part))[key]
            part = replace(part, **{key: _checked(path, value, hint, known[key])})
        result = replace(result, **{section: part})
    return result


def override(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """Apply `section.key=value` settings, values as in TOML; a bare word is a string."""
    for setting in settings:
        path, equals, text = setting.partition("=")
        section, dot, key = path.strip().partition(".")
        if not equals or not dot:
            raise RecipeError(f"--set {setting}: write section.key=value, e.g. --set train.lr=1e-3")
        try:
            value = tomllib.loads(f"value = {text.strip()}")["value"]
        except tomllib.TOMLDecodeError:
            value = text.strip()
        recipe = from_values({section: {key: value}}, recipe)
    return recipe


def _section_type(section: str) -> type:
    hint = typing.get_type_hints(Recipe)[section]
    assert isinstance(hint, type)
    return hint


def _checked(path: str, value: Any, hint: Any, declaration: Field[Any]) -> Any:
    """The value as the declared type, or an error that names the path."""
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        if value not in choices:
            raise RecipeError(f"{path}: {value!r} is not one of {', '.join(choices)}{suggest(str(value), choices)}")
        return value
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise RecipeError(f"{path}: a list of numbers expected, as in [0.2, 0.5], not {_kind(value)}")
        return tuple(_checked(path, one, get_args(hint)[0], declaration) for one in value)
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint:
        raise RecipeError(f"{path}: {_kind(hint)} expected, not {_kind(value)} ({json.dumps(value, default=str)})")
    low = declaration.metadata["low"]
    if isinstance(value, float) and not math.isfinite(value):
        raise RecipeError(f"{path}: a finite number expected, not {value}")
    if low is not None and value < low:
        raise RecipeError(f"{path}: {value} is below the least value, {low}")
    return value


def _kind(value: Any) -> str:
    names: dict[type, str] = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
    kind = value if isinstance(value, type) else type(value)
    return names.get(kind, f"a {kind.__name__}")
