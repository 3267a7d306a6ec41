"""Every setting of a run: which keys a recipe has, their defaults and bounds, and which combinations are refused.

Also decided here: the settings of a graph that nobody has tuned, and the recipes and presets of the package.
"""

from pairre.settings.choose import default_recipe, load_recipe, load_stored_recipe, resolve
from pairre.settings.parse import Overrides, from_values, override, settings_list
from pairre.settings.recipe import (
    LossRecipe,
    ModelRecipe,
    Recipe,
    RegularizerRecipe,
    RulesRecipe,
    SamplingRecipe,
    TablesRecipe,
    TrainRecipe,
    keys,
)
from pairre.settings.shipped import graph_recipes, presets
from pairre.settings.validate import torchrec_lacks, validate, validate_over_processes

__all__ = [
    "LossRecipe",
    "ModelRecipe",
    "Overrides",
    "Recipe",
    "RegularizerRecipe",
    "RulesRecipe",
    "SamplingRecipe",
    "TablesRecipe",
    "TrainRecipe",
    "default_recipe",
    "from_values",
    "graph_recipes",
    "keys",
    "load_recipe",
    "load_stored_recipe",
    "override",
    "presets",
    "resolve",
    "settings_list",
    "torchrec_lacks",
    "validate",
    "validate_over_processes",
]
