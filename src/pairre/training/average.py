"""The mean of weights over the end of a run, which can do what a falling learning rate does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from pairre.kernels.reference.rows import wide
from pairre.settings.recipe import TrainRecipe

_LOOKS = 100  # at the weights, at most


class Average:
    """The mean of tensors as they are after some of the last steps, evenly spaced, the very last among them."""

    def __init__(self, tensors: Mapping[str, Tensor], recipe: TrainRecipe) -> None:
        length = max(1, round(recipe.average * recipe.steps))
        self.every = -(-length // _LOOKS)
        self.first = recipe.steps - (length - 1) // self.every * self.every
        self.tensors = tensors
        self.means = {name: torch.zeros_like(tensor, dtype=wide(tensor.dtype)) for name, tensor in tensors.items()}

    def looks(self, step: int) -> int:
        """How many looks there were after a step."""
        return max(0, (step - self.first) // self.every + 1)

    def wait(self, step: int) -> int:
        """How many steps there are from one to the next look."""
        return self.first + self.looks(step) * self.every - step

    def due(self, step: int) -> bool:
        """Whether a step is followed by a look."""
        return self.looks(step) > self.looks(step - 1)

    def look(self, step: int) -> None:
        """Take the tensors into the mean."""
        for name, mean in self.means.items():
            mean.lerp_(self.tensors[name].to(mean.dtype), 1 / self.looks(step))

    @contextmanager
    def instead(self) -> Iterator[None]:
        """The mean in the place of the tensors."""
        own = {name: tensor.clone() for name, tensor in self.tensors.items()}
        try:
            self.use()
            yield
        finally:
            for name, tensor in self.tensors.items():
                tensor.copy_(own[name])

    def use(self) -> None:
        """Give the tensors up for their mean."""
        for name, tensor in self.tensors.items():
            tensor.copy_(self.means[name])
