"""Graphs that are built in Python: what does not fit together is refused."""

from dataclasses import replace

import pytest
import torch

from pairre.graph import load_graph
from pairre.support.errors import GraphError


@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize(("column", "item"), [(0, "head"), (1, "relation"), (2, "tail")])
@pytest.mark.parametrize("wrong", [-5, 3, 99_999_999])
def test_an_id_without_a_name_is_refused(split, column, item, wrong):
    graph = load_graph([("a", "p", "b"), ("b", "q", "c"), ("c", "r", "a")])
    triples = graph.train.clone()
    triples[1, column] = wrong
    with pytest.raises(GraphError, match=f"{split}: the {item} {wrong} is not an id from 0 to 2"):
        replace(graph, **{split: triples})


@pytest.mark.parametrize("train", [torch.zeros(2, 3), torch.zeros(2, 4, dtype=torch.int32)])
def test_what_are_no_triples_is_refused(train):
    graph = load_graph([("a", "p", "b")])
    with pytest.raises(GraphError, match=r"train is .* an int32 tensor \[N, 3\] of ids expected"):
        replace(graph, train=train)
