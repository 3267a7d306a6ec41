"""A model whose query is the output of a small convolutional network: ConvE."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.graph import Graph, Side
from pairre.models.contract import Query
from pairre.models.scoring import Model
from pairre.support.errors import RecipeError
from pairre.support.randomness import bits, key, uniform

_FILTERS, _SIDE = 32, 3  # filters of 3 × 3
_MOMENTUM = 0.1  # how fast the statistics of batches are forgotten
_TINY = 1e-5  # beside a variance, so that it is never 0


def _rectangle(dim: int) -> tuple[int, int]:
    """Return the height and width of a vector laid out as a rectangle, as nearly square as its length allows."""
    heights = [height for height in range(2, math.isqrt(dim) + 1) if dim % height == 0]
    if not heights or dim // heights[-1] < _SIDE:
        raise RecipeError(f"model.dim: conve lays vectors out as rectangles of at least 2 × {_SIDE}, not of {dim}")
    return heights[-1], dim // heights[-1]


def _num_features(dim: int) -> int:
    """Return how many numbers the convolution of a query has."""
    height, width = _rectangle(dim)
    return _FILTERS * (2 * height - _SIDE + 1) * (width - _SIDE + 1)


class ConvE(Model):
    """score(h, r, t) = ReLU(W vec(ReLU(ω ∗ [h; r]))) · t + b_t (Dettmers et al., AAAI 2018).

    h and r are laid out as rectangles, one above the other, and convolved with 32 filters ω of 3 × 3. Batch
    normalisation and dropout follow the input, the feature maps and the hidden layer. There is no query for heads, so
    relations are reciprocal. A batch queries one side, so each side has statistics of its own.
    """

    name = "conve"
    formula = "ReLU(W vec(ReLU(ω ∗ [h; r]))) · t + b_t"
    paper = "Dettmers et al., AAAI 2018"
    patterns = frozenset({"antisymmetry"})
    metric = "dot"
    tail_queries_only = True
    trains_on_relations = False  # that would be a pass through the network for each of them
    entity_parts = {"vector": 1, "bias": lambda dim: 1}  # noqa: ARG005
    relation_parts = {"vector": 1}
    weight_parts = {
        "filters": lambda _: (_FILTERS, _SIDE * _SIDE),
        "filter_bias": lambda _: (_FILTERS,),
        "matrix": lambda dim: (dim, _num_features(dim)),
        "bias": lambda dim: (dim,),
        "norm_input": lambda _: (2, 1),  # scale and shift of each normalised channel
        "norm_maps": lambda _: (2, _FILTERS),
        "norm_hidden": lambda dim: (2, dim),
    }
    dropout = {"input": 0.2, "maps": 0.2, "hidden": 0.3}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        for layer, size in (("input", 1), ("maps", _FILTERS), ("hidden", self.dim)):
            self.register_buffer(f"mean_{layer}", torch.zeros(2, size))  # tails, heads
            self.register_buffer(f"variance_{layer}", torch.ones(2, size))
        self._streams = dict.fromkeys(self.dropout, 0)

    def attach(self, graph: Graph, bound: float, seed: int) -> None:
        """Take the random streams of dropout."""
        super().attach(graph, bound, seed)
        self._streams = {layer: key(seed, "dropout", layer) for layer in self.dropout}

    def init_from_graph(self, graph: Graph, seed: int) -> None:  # noqa: ARG002
        """Draw filters and matrix uniformly in ±1/√inputs; normalisation starts as the identity."""
        dense = self.dense
        with torch.no_grad():
            for name, inputs in (("filters", _SIDE * _SIDE), ("matrix", _num_features(self.dim))):
                part = getattr(dense, name)
                counter = torch.arange(part.numel(), device=part.device).view(part.shape)
                part.copy_((2 * uniform(key(seed, "init", name), counter) - 1) / math.sqrt(inputs))
            for name in ("filter_bias", "bias"):
                getattr(dense, name).zero_()
            for layer in self.dropout:
                scale, shift = getattr(dense, f"norm_{layer}")
                scale.fill_(1)
                shift.zero_()

    def prepare(self, e: Any, r: Any) -> Tensor:  # noqa: ARG002
        """Return vector and bias."""
        return torch.cat([e.vector, e.bias], -1)

    def make_query(self, side: Side, anchor: Tensor, relation: Tensor) -> Query:
        """Return the output of the network, by the statistics of the side; its last feature is for the bias."""
        h, r, dense = self.parts("entity", anchor), self.parts("relation", relation), self.dense
        height, width = _rectangle(self.dim)
        x = torch.cat([h.vector, r.vector], -1).view(-1, 1, 2 * height * width)
        x = self._dropped("input", self._normalised("input", side, x, dense)).view(-1, 2 * height, width)
        patches = x.unfold(1, _SIDE, 1).unfold(2, _SIDE, 1).flatten(3).flatten(1, 2)  # [B, places, 9]
        x = dense.filters @ patches.mT + dense.filter_bias[:, None]
        x = self._dropped("maps", F.relu(self._normalised("maps", side, x, dense)))
        x = F.linear(x.flatten(1), dense.matrix, dense.bias)
        x = F.relu(self._normalised("hidden", side, self._dropped("hidden", x), dense))
        return torch.cat([x, x.new_ones(len(x), 1)], -1), None

    def _normalised(self, layer: str, side: Side, x: Tensor, dense: Any) -> Tensor:
        """Return channels [B, C] or [B, C, places] after batch normalisation; cuDNN is slower at it."""
        mean, variance = (getattr(self, f"{name}_{layer}")[int(side == "head")] for name in ("mean", "variance"))
        scale, shift = getattr(dense, f"norm_{layer}")
        if self.training:
            kept, num = (mean, variance), x.numel() // len(mean)
            variance, mean = torch.var_mean(x, [0, *range(2, x.dim())], correction=0)
            with torch.no_grad():
                kept[0].lerp_(mean, _MOMENTUM)
                kept[1].lerp_(variance * (num / max(num - 1, 1)), _MOMENTUM)
        factor = scale * (variance + _TINY).rsqrt()
        shape = (-1, *[1] * (x.dim() - 2))
        return torch.addcmul((shift - mean * factor).view(shape), x, factor.view(shape))

    def _dropped(self, layer: str, x: Tensor) -> Tensor:
        """Return x with some features, or whole feature maps, set to 0 in training; the step decides which."""
        if not self.training or self.step is None:
            return x
        shape = x.shape[:2] if layer == "maps" else x.shape
        counter = torch.arange(math.prod(shape), device=x.device).view(*shape, *[1] * (x.dim() - len(shape)))
        kept = uniform(bits(self._streams[layer], self.step), counter) >= self.dropout[layer]
        return x * (kept / (1 - self.dropout[layer]))
