"""The one place where combinations of settings are refused.

`parse` checks a key by itself; here a whole recipe is held against the graph and the model that it is meant for.
"""

from __future__ import annotations

from pairre.graph import Graph
from pairre.models import Model, models
from pairre.settings import registry
from pairre.settings.parse import check_choice
from pairre.settings.recipe import Recipe, keys
from pairre.support.errors import RecipeError


def validate(recipe: Recipe, graph: Graph, model: type[Model], *, with_rules: bool = False) -> None:
    """Raise a RecipeError that names the key if the recipe cannot be trained on the graph with the model."""
    _check_registered_names(recipe)
    _check_loss(recipe, graph)
    _check_sampling(recipe, graph)
    _check_model(recipe, model)
    _check_place(recipe, model)
    _check_regularizer(recipe, model)
    if with_rules:
        _check_rules(recipe, model)


def validate_over_processes(recipe: Recipe, model: type[Model], device: str, *, with_rules: bool = False) -> None:
    """Raise a RecipeError that names the key if the recipe cannot be trained by several processes on a device type."""
    alone = "train it in one process (without --nproc)"
    if model.needs_other_rows:
        raise RecipeError(f"model.name: {model.name} reads the rows of neighbours, which other processes hold; {alone}")
    if model.dropout:
        what = "normalises and drops features over a whole batch, of which each process has a part"
        raise RecipeError(f"model.name: {model.name} {what}; {alone}")
    if with_rules:
        raise RecipeError(f"rules.mode: several processes cannot follow rules; leave out --rules, or {alone}")
    if recipe.distill.teacher:
        raise RecipeError(f"distill.teacher: several processes cannot learn from a teacher; {alone}")
    if recipe.tables.place == "host":
        raise RecipeError(f"tables.place: host is for one process with a GPU; set it to device, or {alone}")
    if recipe.tables.engine == "torchrec" and (lack := torchrec_lacks(recipe, model, device)):
        raise RecipeError(f"tables.engine: torchrec {lack}; set it to exchange")


def torchrec_lacks(recipe: Recipe, model: type[Model], device: str) -> str:
    """Return what TorchRec's table cannot do of a recipe on a device type; empty if it can do all."""
    if device != "cpu":
        return f"is used on a CPU only, not on {device}"
    if recipe.train.optimizer != "adagrad":
        return f"updates rows by adagrad only, not by {recipe.train.optimizer} (train.optimizer)"
    if recipe.model.storage != "float32":
        return "rounds half precision to the nearest, so that small updates would be lost (model.storage)"
    if recipe.model.unit_norm or "entity" in model.constraints:
        return f"does not bring rows back to what {model.name} allows after an update"
    if (width := model.entity_width(recipe.model.dim)) % 4:
        return f"needs a multiple of 4 numbers in a row, not {width} (model.dim)"
    return ""


def _check_registered_names(recipe: Recipe) -> None:
    """Refuse a loss or an optimiser that no loaded module defines, as a recipe from a run folder may name."""
    for path, declaration in keys():
        if declaration.metadata["choices"] is not None:
            section, key = path.split(".")
            check_choice(path, getattr(getattr(recipe, section), key), declaration.metadata["choices"])


def _check_loss(recipe: Recipe, graph: Graph) -> None:
    loss, sampling = recipe.loss, recipe.sampling
    weighted = loss.subsampling or loss.query_balance
    if loss.name == "k-vs-all" and (sampling.negatives or weighted or not sampling.filter):
        raise RecipeError(
            "loss.name: k-vs-all scores each query once, against all entities: "
            "set sampling.negatives and loss.query_balance to 0, loss.subsampling to false and sampling.filter to true"
        )
    if loss.name == "k-vs-all" and "train" in graph.weights:
        raise RecipeError(
            "loss.name: k-vs-all has labels instead of weighted triples, and the triples have weights: choose another "
            "loss, such as cross-entropy with sampling.negatives=0, or leave the weights out with --weights none"
        )
    if loss.smoothing >= 1:
        raise RecipeError(f"loss.smoothing: a fraction below 1 expected, not {loss.smoothing}")


def _check_sampling(recipe: Recipe, graph: Graph) -> None:
    sampling = recipe.sampling
    if sampling.same_type and not graph.types:
        raise RecipeError(f"sampling.same_type: {graph.name} has no types of entities")
    if sampling.same_type and (sampling.chunk_size != 1 or not sampling.negatives):
        raise RecipeError("sampling.same_type: each positive needs negatives of its own: set sampling.chunk_size to 1")


def _check_model(recipe: Recipe, model: type[Model]) -> None:
    settings = recipe.model
    metrics = [metric for metric in (model.metric, *model.other_metrics) if isinstance(metric, str)]
    if settings.norm != "own" and settings.norm not in metrics:
        raise RecipeError(f"model.norm: {model.name} has {' or '.join(metrics) or 'its own'}, not {settings.norm}")
    if any(share >= 1 for share in settings.dropout):
        raise RecipeError(f"model.dropout: fractions below 1 expected, not {max(settings.dropout)}")
    if settings.dropout and len(settings.dropout) != len(model.dropout):
        layers = ", ".join(model.dropout) or "none"
        expected = f"a fraction for each layer of {model.name} expected ({layers})"
        raise RecipeError(f"model.dropout: {expected}, not {len(settings.dropout)}")
    if settings.unit_norm and "entity" in model.constraints:
        raise RecipeError(f"model.unit_norm: rows of {model.name} have bounds of their own")
    if recipe.loss.relation_weight and not model.trains_on_relations:
        raise RecipeError(f"loss.relation_weight: {model.name} cannot score all relations of a pair while it trains")
    model.num_weights(settings.dim)  # a model that cannot have so many features refuses here


def _check_place(recipe: Recipe, model: type[Model]) -> None:
    if recipe.tables.place == "host" and model.rows_per_entity > 1:
        what = f"{model.name} reads the rows of neighbours, too many in each step to come from the host"
        raise RecipeError(f"tables.place: {what}; set it to device")
    if recipe.tables.place == "host" and not recipe.sampling.negatives:
        raise RecipeError(
            "tables.place: each step reads all entities (sampling.negatives=0), which are too many to come from the "
            "host; draw negatives, or set tables.place to device"
        )


def _check_regularizer(recipe: Recipe, model: type[Model]) -> None:
    name = recipe.regularizer.name
    if name in registry.FOR_PRODUCTS and not model.linear_in_relation:
        able = ", ".join(other.name for other in models() if other.linear_in_relation)
        raise RecipeError(
            f"regularizer.name: {model.name} has no score that {name} is made for; models that have: {able}"
        )
    if recipe.regularizer.equivariance > 1:
        raise RecipeError(f"regularizer.equivariance: at most 1 expected, not {recipe.regularizer.equivariance}")


def _check_rules(recipe: Recipe, model: type[Model]) -> None:
    mode = recipe.rules.mode
    if mode not in model.rule_modes:
        able = ", ".join(other.name for other in models() if mode in other.rule_modes)
        raise RecipeError(f"rules.mode: {model.name} cannot follow rules in mode {mode}; models that can: {able}")
