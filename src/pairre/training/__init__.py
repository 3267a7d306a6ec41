"""From a recipe to a trained run: batches, loss terms, one step, the loop around the steps, several seeds.

Decided here: what a step does and when training validates, stores a checkpoint and stops.
"""
