"""What a run that is resumed must share with the run folder, and what of its recipe may change."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from pairre.graph import Graph
from pairre.rules import Rule
from pairre.runs.folder import RunFolder
from pairre.settings import Recipe
from pairre.support.errors import RecipeError, RunError
from pairre.support.files import file_checksum, write_checked_json, write_text

# Keys that decide how long a run trains, when it validates, where rows are and what brings them, not what a step does.
CHANGEABLE = (
    "train.steps",
    "train.epochs",
    "train.patience",
    "train.validate_every",
    "train.validate_triples",
    "train.checkpoint_seconds",
    "tables.place",
    "tables.engine",
)


def changed_keys(
    folder: RunFolder, graph: Graph, recipe: Recipe, rules: Sequence[Rule], named: Collection[str]
) -> set[str]:
    """Return the keys of the recipe that differ from those of a folder.

    Only changeable keys that the user has `named` may differ; everything else that does is a RunError or RecipeError.
    """
    path, differences = folder.path, recipe.differences(folder.recipe())
    length = {"train.steps", "train.epochs"}  # two ways to say one thing
    named = {*named, *length} if length & {*named} else named
    by_key = {line.partition(":")[0]: line for line in differences}
    if refused := [line for key, line in by_key.items() if key not in named or key not in CHANGEABLE]:
        keys = ", ".join(CHANGEABLE)
        raise RunError(
            f"{path}: made with another recipe ({'; '.join(refused)}); choose another --out: what --set can change "
            f"together with --resume is {keys}"
        )
    if folder.description().get("fingerprint") != graph.fingerprint:
        raise RunError(
            f"{path}: made from another graph than '{graph.name}' is now; leave out GRAPH, so that the stored one is "
            "used, or choose another --out"
        )
    if list(rules) != (mine := folder.rules()):
        made = f"with {len(mine)} other rules ({path / 'rules.tsv'})" if mine else "without rules"
        raise RunError(f"{path}: made {made}; leave out --rules, or choose another --out")
    if "train.steps" in by_key and folder.checkpoint:
        _check_steps(folder, recipe.train.steps)
    return set(by_key)


def _check_steps(folder: RunFolder, steps: int) -> None:
    """Refuse fewer steps than a run has taken."""
    reached = folder.stored_progress().step
    if steps < reached:
        raise RecipeError(f"train.steps: {steps:,} is below step {reached:,}, which {folder.path} has reached")


def replace_recipe(folder: RunFolder, recipe: Recipe) -> None:
    """Store another recipe in a folder; a process that is killed meanwhile leaves the old or the new one, whole.

    While the file is replaced, run.json has the checksums of both.
    """
    file, text, described = folder.path / "recipe.toml", recipe.to_toml(), folder.description()
    described.pop("next_recipe", None)
    now, after = file_checksum(file), hashlib.sha256(text.encode()).hexdigest()
    described["files"]["recipe.toml"] = now
    write_checked_json(folder.path / "run.json", {**described, "next_recipe": after})
    write_text(file, text)
    described["files"]["recipe.toml"] = after
    write_checked_json(folder.path / "run.json", described)
