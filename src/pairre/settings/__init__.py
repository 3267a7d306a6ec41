"""Every setting of a run: the recipe, where a setting is validated, and the recipes that come with the package.

Decided here: which keys a recipe has, their defaults and bounds, and which combinations are refused.
"""
