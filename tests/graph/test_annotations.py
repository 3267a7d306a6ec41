"""Labels, types, prefixes and counts: stored with a graph and read back, lazily; damage is one line."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from pairre.graph import Graph, Vocabulary
from pairre.graph.annotations import Annotations, EntityTypes, labels_by_id
from pairre.support.errors import GraphError
from tests.conftest import planted_graph


def annotated() -> Graph:
    plain = planted_graph()
    labels = labels_by_id(plain.entities, pa.array(["e3", "nobody", "e0", "e3"]), pa.array(["Three", "x", " ", "3"]))
    types = EntityTypes.of_pairs(
        Vocabulary(["odd", "even"], "type"), np.array([5, 0, 3, 5, 5]), np.array([1, 1, 0, 0, 1])
    )
    annotations = Annotations({"e": "http://e.org/"}, {"literals": 7}, labels, None, types)
    return Graph(plain.name, plain.entities, plain.relations, *splits(plain), annotated=annotations)


def splits(graph: Graph) -> tuple[torch.Tensor, ...]:
    return graph.train, graph.valid, graph.test


def test_labels_by_id():
    names = Vocabulary(["a", "b", "c"], "entity")
    labels = labels_by_id(names, pa.array(["c", "x", "b", "c"]), pa.array([" C ", "X", " ", "second"]))
    assert labels.to_pylist() == [None, None, "C"]
    assert labels_by_id(names, pa.array(["x"]), pa.array(["X"])) is None


def test_annotations_survive_a_folder(tmp_path):
    graph = annotated()
    graph.save(tmp_path)
    again = Graph.load(tmp_path, "ring")
    assert again.annotations.entity_labels.to_pylist() == graph.annotations.entity_labels.to_pylist()
    assert (again.show_entity(3), again.show_entity(4), again.entity_label(0)) == ("Three", "e4", None)
    assert again.find_entity("three") == 3
    assert again.annotations.prefixes == {"e": "http://e.org/"}
    assert again.annotations.skipped == {"literals": 7}
    assert (again.has_labels, again.relation_label(0)) == (True, None)
    assert again.fingerprint == graph.fingerprint == planted_graph().fingerprint
    types = again.entity_types
    assert [types.names[i] for i in types.of(5)] == ["odd", "even"]
    assert (types.of(4), types.members(1).tolist()) == ([], [0, 5])


def test_a_graph_without_annotations_stores_none(tmp_path):
    planted_graph().save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 5
    assert not Graph.load(tmp_path, "ring").has_labels
    assert planted_graph().entity_types is None


def test_types_of_numbered_ranges():
    plain = planted_graph()
    graph = Graph("ring", plain.entities, plain.relations, *splits(plain), types={"x": 0, "none": 30, "y": 30})
    types = graph.entity_types
    assert [types.names[types.of(i)[0]] for i in (0, 29, 30, 39)] == ["x", "x", "y", "y"]
    assert [len(types.members(i)) for i in range(3)] == [30, 0, 10]


IDS = pa.array([99], pa.int32())


@pytest.mark.parametrize(
    ("file", "content", "fault"),
    [
        ("source.json", "[1]", "prefixes, and numbers of skipped triples, expected"),
        ("source.json", '{"prefixes": {"a": 1}, "skipped": {}}', "'prefixes' is not a table of str values"),
        ("source.json", '{"prefixes": {}, "skipped": 3}', "'skipped' is not a table of int values"),
        ("source.json", "{", "damaged"),
        ("entity-labels.parquet", {"id": IDS, "label": pa.array(["x"])}, "an id without a name"),
        ("entity-labels.parquet", {"id": pa.array([1]), "label": pa.array(["x"])}, "an id without a name"),
        ("entity-labels.parquet", {"id": pa.array([1], pa.int32()), "label": IDS}, "the labels are int32, not text"),
        ("entity-types.parquet", {"entity": IDS, "type": pa.array([0], pa.int32())}, "an id without a name"),
        ("entity-types.parquet", {"entity": pa.array([0], pa.int32()), "type": IDS}, "an id without a name"),
        ("type-names.parquet", {"other": pa.array(["x"])}, "no column 'name'"),
        ("relation-labels.parquet", "no Parquet", "damaged"),
    ],
)
def test_damage_is_one_line(tmp_path, file, content, fault):
    annotated().save(tmp_path)
    if isinstance(content, str):
        (tmp_path / file).write_text(content)
    else:
        pq.write_table(pa.table(content), tmp_path / file)
    graph = Graph.load(tmp_path, "ring")
    with pytest.raises(GraphError, match=fault) as caught:
        assert graph.annotations
    assert str(caught.value).startswith(str(tmp_path / file))
    assert "\n" not in str(caught.value)
