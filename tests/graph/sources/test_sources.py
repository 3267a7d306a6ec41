"""Objects in memory: every kind gives the graph that a file of the same triples gives, and says what it cannot read."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from pairre.graph import SPLITS, load_graph
from pairre.graph.sources import kinds
from pairre.support.errors import GraphError

TRIPLES = [("a", "r", "b"), ("b", "r", "é"), ("é", "s", "a"), ("a", "s", "é"), ("b", "s", "a")]
WEIGHTS = [1.0, 0.0, 2.5, 3.0, 0.5]
TITLES = ("source", "via", "target")
TABLE = {title: list(column) for title, column in zip(TITLES, zip(*TRIPLES, strict=True), strict=True)}
WEIGHTED = {**TABLE, "weight": WEIGHTS}
COLUMNS = {"columns": TITLES}


def named(graph):
    """The triples of all splits with their weights."""
    found = {}
    for split in SPLITS:
        weights = graph.weights[split].tolist() if graph.weights else [None] * len(graph.split(split))
        found |= dict(zip(graph.names(graph.split(split)), weights, strict=True))
    return found


def network(kind, **attributes):
    graph = kind()
    for (head, relation, tail), weight in zip(TRIPLES, WEIGHTS, strict=True):
        graph.add_edge(head, tail, **{"relation": relation, **({"weight": weight} if attributes else {})})
    return graph


def keyed():
    graph = nx.MultiDiGraph()
    for head, relation, tail in TRIPLES:
        graph.add_edge(head, tail, key=relation)
    return graph


class HeteroLike:
    """What `HeteroData` offers, without torch_geometric."""

    def __init__(self, nodes, edges):
        self.node_types, self.edge_types = list(nodes), list(edges)
        self._stores = {**nodes, **edges}

    def __getitem__(self, key):
        return self._stores[key]


def hetero(**weights):
    names = SimpleNamespace(num_nodes=3, name=["a", "b", "é"])
    links = {"r": [[0, 1], [1, 2]], "s": [[2, 0, 1], [0, 2, 0]]}
    edges = {("x", relation, "x"): SimpleNamespace(edge_index=torch.tensor(index)) for relation, index in links.items()}
    for relation, values in weights.items():
        edges["x", relation, "x"].edge_weight = torch.tensor(values)
    return HeteroLike({"x": names}, edges)


ROW_BY_ROW = {  # in the order of TRIPLES, so that the whole graph is the same
    "list": (TRIPLES, {}),
    "lists": ([list(row) for row in TRIPLES], {}),
    "iterator": (lambda: iter(TRIPLES), {}),
    "columns of a list": ([(t, 0, h, r) for h, r, t in TRIPLES], {"columns": (3, 4, 1)}),
    "text array": (np.array(TRIPLES), {}),
    "object array": (np.array(TRIPLES, object), {}),
    "pandas": (pd.DataFrame(TABLE), COLUMNS),
    "pandas by number": (pd.DataFrame(TRIPLES), {}),
    "pandas with an odd column": (pd.DataFrame({**TABLE, "more": [{}, [], 1, "x", None]}), COLUMNS),
    "pandas categories": (pd.DataFrame(TABLE).astype("category"), COLUMNS),
    "pandas with its own rows": (pd.DataFrame(TABLE, index=[9, 3, 5, 1, 0]), COLUMNS),
    "polars": (pl.DataFrame(TABLE), COLUMNS),
    "polars lazy": (pl.LazyFrame(TABLE), COLUMNS),
    "polars categories": (pl.DataFrame(TABLE).with_columns(pl.all().cast(pl.Categorical)), COLUMNS),
    "pyarrow": (pa.table(TABLE), COLUMNS),
    "record batch": (pa.RecordBatch.from_pydict(TABLE), COLUMNS),
}


@pytest.mark.parametrize("kind", ROW_BY_ROW)
def test_a_source_gives_the_graph_of_a_file(tmp_path, kind):
    (tmp_path / "g.tsv").write_text("".join("\t".join(row) + "\n" for row in TRIPLES), encoding="utf-8")
    source, options = ROW_BY_ROW[kind]
    graph = load_graph(source() if callable(source) else source, **options)
    assert graph.fingerprint == load_graph(tmp_path / "g.tsv").fingerprint


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ([(*row, weight) for row, weight in zip(TRIPLES, WEIGHTS, strict=True)], {}),
        (TRIPLES, {"weights": WEIGHTS}),
        (np.array(TRIPLES), {"weights": np.array(WEIGHTS)}),
        (np.array([(*row, weight) for row, weight in zip(TRIPLES, WEIGHTS, strict=True)], object), {"weights": 4}),
        (pd.DataFrame(WEIGHTED), COLUMNS),
        (pl.DataFrame(WEIGHTED).rename({"weight": "trust"}), {**COLUMNS, "weights": "trust"}),
        (pa.table(WEIGHTED), {}),  # three columns are left beside the weight
        (network(nx.DiGraph, weight=True), {}),
        (network(nx.MultiDiGraph, weight=True), {}),
        (hetero(r=[1.0, 0.0], s=[2.5, 3.0, 0.5]), {}),
    ],
)
def test_weights_follow_their_triples_into_the_splits(source, options):
    graph = load_graph(source, **options, split=(0.6, 0.2, 0.2), name="mine")
    assert named(graph) == dict(zip(TRIPLES, WEIGHTS, strict=True))
    assert graph.name == "mine"
    assert all(weights.dtype == torch.float32 for weights in graph.weights.values())


@pytest.mark.parametrize("source", [network(nx.DiGraph), network(nx.MultiDiGraph), keyed(), hetero()])
def test_graphs_of_other_libraries(source):
    assert named(load_graph(source)) == dict.fromkeys(TRIPLES)


def test_whole_numbers_become_names():
    numbers = [[0, 7, 1], [1, 7, 2], [2, 8, 0]]
    expected = {tuple(map(str, row)): None for row in numbers}
    for source in (
        *(np.array(numbers), torch.tensor(numbers), np.array(numbers, np.uint8), numbers, pd.DataFrame(numbers)),
        nx.DiGraph([(h, t, {"kind": r}) for h, r, t in numbers]),
    ):
        assert named(load_graph(source)) == expected


def test_splits_of_several_kinds(tmp_path):
    (tmp_path / "held.csv").write_text("a,r,é\n")
    graph = load_graph({"train": pl.DataFrame(TABLE), "valid": tmp_path / "held.csv", "test": [("b", "r", "a")]})
    assert list(graph.names(graph.train)) == TRIPLES
    assert list(graph.names(graph.valid)) == [("a", "r", "é")]
    assert list(graph.names(graph.test)) == [("b", "r", "a")]
    weighted = load_graph({"Train": pd.DataFrame(WEIGHTED), "dev": TRIPLES})
    assert weighted.weights["train"].tolist() == WEIGHTS
    assert "valid" not in weighted.weights


def test_nodes_of_hetero_data_without_names_are_numbered_by_type(caplog):
    nodes = {"user": SimpleNamespace(num_nodes=3), "item": SimpleNamespace(num_nodes=2)}
    edges = {
        ("user", "buys", "item"): SimpleNamespace(edge_index=torch.tensor([[0, 2], [1, 1]])),
        ("user", "likes", "user"): SimpleNamespace(edge_index=torch.tensor([[0], [2]])),
        ("user", "likes", "item"): SimpleNamespace(edge_index=torch.tensor([[2], [1]])),
    }
    with caplog.at_level(logging.WARNING, logger="pairre"):
        graph = load_graph(HeteroLike(nodes, edges))
    assert set(named(graph)) == {
        *(("user:0", "buys", "item:1"), ("user:2", "buys", "item:1")),
        *(("user:0", "user:likes:user", "user:2"), ("user:2", "user:likes:item", "item:1")),
    }
    assert "HeteroData: 2 nodes without an edge left out" in caplog.text


def test_hetero_data_of_torch_geometric():
    data = pytest.importorskip("torch_geometric.data", exc_type=ImportError).HeteroData()
    data["user"].num_nodes, data["item"].x = 2, torch.zeros(2, 4)
    data["user", "buys", "item"].edge_index = torch.tensor([[0, 1], [1, 0]])
    data["user", "buys", "item"].edge_weight = torch.tensor([0.5, 2.0])
    assert named(load_graph(data)) == {("user:0", "buys", "item:1"): 0.5, ("user:1", "buys", "item:0"): 2.0}


def lone():
    graph = network(nx.DiGraph)
    graph.add_edge("a", "a")
    return graph


def broken(**changes):
    data = hetero()
    for name, value in changes.items():
        setattr(data["x", "r", "x"] if name.startswith("edge") else data["x"], name, value)
    return data


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (3, {}, "a graph cannot be read from a int; what can: a path or a name; an array [N, 3]"),
        (None, {}, "a graph needs a source, or an endpoint (sparql) with a query"),
        (TRIPLES, {"query": "SELECT"}, "a graph needs a source, or an endpoint (sparql) with a query"),
        ([], {}, "no triples in this object"),
        (pl.DataFrame(TABLE).clear(), COLUMNS, "no triples in this object"),
        (["abc"], {}, "list of triples: triple 1 is 'abc'; (head, relation, tail) or (head, relation, tail, weight)"),
        ([("a", "b")], {}, "list of triples: 2 columns, expected 3 (head, relation, tail)"),
        ([*TRIPLES, ("a", "b")], {}, "list of triples: triple 6 has 2 members, the first has 3"),
        ([("a", 1.5, "c")], {}, "triple 1: the relation is 1.5; a text or a whole number expected"),
        ([("a", True, "c")], {}, "triple 1: the relation is True; a text or a whole number expected"),
        ([("a", "r", None)], {}, "triple 1: the tail is None; a text or a whole number expected"),
        ([*TRIPLES, (" ", "r", "b")], {}, "list of triples: triple 6: the head is empty"),
        ([("a", "r", "b", "heavy")], {}, "triple 1: the weight is 'heavy'; a number expected"),
        ([("a", "r", "b", 1), ("a", "r", "c", -1)], {}, "weights: triple 2: the weight is -1.0; a finite number"),
        (TRIPLES, {"weights": [1.0] * 4}, "weights: a number for each of 5 triples expected, not (4,)"),
        (TRIPLES, {"weights": [0.0] * 5}, "the weight of every train triple is 0"),
        (TRIPLES, {"weights": [1.0, float("nan")] * 2 + [1]}, "weights: triple 2: the weight is nan; a finite number"),
        (TRIPLES, {"weights": ["x"] * 5}, "weights: a number for each triple expected"),
        ("atlas", {"weights": [1.0]}, "weights: the title or the number of a column expected"),
        ("atlas", {"weights": "w"}, "atlas: --weights w is for files of triples"),
        ({"train": TRIPLES}, {"weights": [1.0] * 5}, "weights: the title or the number of a column expected"),
        (TRIPLES, {"header": True}, "header and delimiter are for files of text; leave them out"),
        (np.zeros(3), {}, "array: two dimensions [N, 3] expected, not [3]"),
        (np.zeros((2, 4), int), {}, "array: 4 columns, expected 3 (head, relation, tail); pick them with --columns"),
        (np.zeros((2, 3)), {}, "array: column '1' holds double, not names"),
        (np.array([["a", {}, "b"], ["a", 2, "b"]], object), {}, "array: "),
        (pd.DataFrame({"head": [], "relation": [], "tail": []}), {}, "table: no triples in this object"),
        (pd.DataFrame({**TABLE, "via": [1.5] * 5}), COLUMNS, "table: column 'via' holds double, not names"),
        (
            pd.DataFrame({**TABLE, "via": ["r", None] * 2 + ["r"]}),
            COLUMNS,
            "table: row 2: the relation ('via') is null",
        ),
        (pd.DataFrame({**TABLE, "via": ["r", 1, {}, 2, 3]}), COLUMNS, "table: a column cannot be read as names: "),
        (pd.DataFrame(TRIPLES, columns=["x", "x", "y"]), {}, "table: "),
        (pa.table([pa.array(["a"])] * 3, names=["x", "x", "y"]), {}, "table: "),
        (pl.DataFrame(TABLE), {"columns": ("source", "vai", "target")}, "did you mean 'via'?"),
        (
            pl.DataFrame({**WEIGHTED, "weight": ["x"] * 5}),
            COLUMNS,
            "table: column 'weight' holds large_string, not wei",
        ),
        (pl.DataFrame({**WEIGHTED, "weight": [1, 2, None, 4, 5]}), COLUMNS, "table: row 3: the weight ('weight') is "),
        (pl.DataFrame(WEIGHTED), {**COLUMNS, "weights": "via"}, "table: --weights via is the column of the relation"),
        (nx.Graph([("a", "b")]), {}, "NetworkX graph: it is undirected; graph.to_directed() has each edge"),
        (nx.DiGraph([("a", "b")]), {}, "NetworkX graph: its edges have no attribute for the relation"),
        (lone(), {}, "NetworkX graph: the edge 'a' → 'a' has no attribute 'relation'"),
        (
            nx.DiGraph([(("a", 1), "b", {"relation": "r"})]),
            {},
            "NetworkX graph: triple 1: the head is ('a', 1); a text",
        ),
        (hetero(), COLUMNS, "HeteroData: its edge types are the relations; leave out columns"),
        (hetero(r=[1.0, 2.0]), {}, "HeteroData: 1 edge types have no edge_weight; give it to all"),
        (hetero(), {"weights": "trust"}, "HeteroData: 2 edge types have no trust; give it to all"),
        (broken(name=["a", "a", "b"]), {}, "HeteroData: data['x'].name: a different text for each node expected"),
        (broken(name=None, num_nodes=None), {}, "HeteroData: set data['x'].num_nodes, or give its nodes names"),
        (broken(name=None, num_nodes=1), {}, "edge_index: a number without a node, as there are 1"),
        (broken(edge_index=torch.zeros(3)), {}, "edge_index: whole numbers of shape [2, E] expected"),
        ({"trian": TRIPLES}, {}, "split 'trian': train, valid and test expected, each once"),
        ({"valid": TRIPLES}, {}, "graph: no train split"),
        ({"train": TRIPLES, "training": TRIPLES}, {}, "split 'training': train, valid and test expected, each once"),
        ({"train": TRIPLES}, {"seed": 1}, "graph: --split and --split-seed are for a single file"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(source, options, message):
    with pytest.raises(GraphError) as caught:
        load_graph(source, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_kind_is_one_module_and_has_a_line_of_help():
    modules = [kind.read.__module__.rpartition(".")[2] for kind in kinds()]
    assert {"arrays", "frames", "hetero", "networks", "triples"} <= set(modules)
    assert len(set(modules)) == len(modules)
    assert all(kind.help for kind in kinds())
