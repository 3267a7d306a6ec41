"""A graph grows: ids stay, new entities follow, and what means nothing is refused."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from pairre.graph import Layout, load_graph
from pairre.graph.annotation_files import with_more
from pairre.graph.annotations import Annotations
from pairre.graph.extend import extend_graph, read_new_triples
from pairre.graph.formats.registry import encode_rows
from pairre.graph.graph import replace
from pairre.support.errors import GraphError

NEW = [("new a", "next", "e3"), ("e1", "beside", "new b"), ("new b", "next", "new a"), ("new a", "next", "e3")]


def grown(graph, new):
    return extend_graph(graph, *read_new_triples(new, Layout()))


def test_ids_stay_and_new_names_follow(graph):
    known = next(graph.names(graph.test[:1]))
    extended = grown(graph, [*NEW, known])
    size = graph.num_entities
    assert extended.graph.entities.name_list(range(size)) == graph.entities.name_list(range(size))
    assert sorted(extended.graph.entities.name_list(range(size, size + 2))) == ["new a", "new b"]
    assert list(extended.graph.names(extended.added)) == NEW[:3]
    assert torch.equal(extended.graph.train, torch.cat([graph.train, extended.added]))
    assert torch.equal(extended.graph.test, graph.test)
    assert extended.num_known == 1
    names = [name for head, _, tail in NEW for name in (head, tail)]
    assert extended.named.tolist() == sorted({extended.graph.entities.id(name) for name in names})


def test_a_file_is_read_as_train_reads_one(graph, tmp_path):
    (tmp_path / "new.csv").write_text("to;kind;from\ne3;next;new a\n")
    extended = extend_graph(graph, *read_new_triples(tmp_path / "new.csv", Layout(("from", "kind", "to"), True, ";")))
    assert list(extended.graph.names(extended.added)) == [("new a", "next", "e3")]


def test_labels_stay_at_their_entities(graph):
    labels = pa.array([f"label {i}" for i in range(graph.num_entities)])
    extended = grown(replace(graph, annotated=Annotations(entity_labels=labels)), NEW).graph
    assert extended.entity_label(3) == "label 3"
    assert extended.entity_label(graph.num_entities) is None


E = "http://e.org/"


@pytest.fixture
def ontology(tmp_path):
    """A graph with prefixes, labels and types, and the folder of its file."""
    pytest.importorskip("pyoxigraph")
    rows = [f"ex:a{i} ex:feeds ex:b{i} ; a ex:Fan . ex:b{i} a ex:Room ." for i in range(6)]
    prefixes = [f"@prefix ex: <{E}> .", "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> ."]
    (tmp_path / "g.ttl").write_text("\n".join([*prefixes, 'ex:a1 rdfs:label "Big fan" .', *rows]))
    return load_graph(tmp_path / "g.ttl", split=(1, 0, 0), exclude=["rdf:type"]), tmp_path


def test_known_names_may_be_written_as_in_queries(ontology, caplog):
    graph, _ = ontology
    new = [("ex:a1", "ex:feeds", f"<{E}b2>"), ("Big fan", "feeds", "ex:b3"), ("ex:new", "FEEDS", "ex:B4")]
    extended = grown(graph, new)
    assert list(extended.graph.names(extended.added)) == [
        (f"{E}a1", f"{E}feeds", f"{E}b2"),
        (f"{E}a1", f"{E}feeds", f"{E}b3"),
        (f"{E}new", f"{E}feeds", f"{E}B4"),  # case is not forgiven for an entity, which may be a new one
    ]
    assert extended.graph.num_entities == graph.num_entities + 2
    assert f"1 new entities are spelt nearly as known ones, such as '{E}B4' (known: '{E}b4')" in caplog.text


def test_new_entities_bring_their_labels_and_types(ontology):
    graph, folder = ontology
    text = f'<{E}new> <{E}feeds> <{E}b1> ; a <{E}Pump> ; <http://www.w3.org/2000/01/rdf-schema#label> "New pump" .'
    (folder / "new.ttl").write_text(text)
    triples = read_new_triples(folder / "new.ttl", Layout())
    extended = extend_graph(graph, *triples).graph
    assert [extended.show_entity(extended.entities.id(f"{E}{name}")) for name in ("new", "a1", "a2")] == [
        *("New pump", "Big fan", "ex:a2")
    ]
    for name in ("a1", "b1"):
        one, other = (g.entity_types.of(g.entities.id(f"{E}{name}")) for g in (graph, extended))
        assert one == other
    (folder / "labels.csv").write_text(f"{E}new,Newest pump\n{E}a2,Second fan\n")
    (folder / "types.csv").write_text(f"{E}new,{E}Pump\n{E}new,{E}Fan\n")
    more = with_more(extended, folder / "labels.csv", folder / "types.csv")
    new = more.entities.id(f"{E}new")
    assert (more.show_entity(new), more.find_entity("Second fan")) == ("Newest pump", more.entities.id(f"{E}a2"))
    assert sorted(more.entity_types.names[i] for i in more.entity_types.of(new)) == [f"{E}Fan", f"{E}Pump"]
    assert len(more.entity_types.members(more.entity_types.names.id(f"{E}Room"))) == 6


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ([("e1", "nxt", "e2"), ("e1", "next", "x")], "relations that the run does not know: 'nxt'"),
        ([("e1", f"r{i}", "e2") for i in range(7)], "'r4' and 2 more"),
        ([], "new triples: none are given"),
        ([("e1", "next")], "new triple 1: three names expected"),
        ([("e1", "next", "x"), ("e1", "next", " ")], "new triple 2: three names expected"),
    ],
)
def test_what_means_nothing_is_refused(graph, new, message):
    with pytest.raises(GraphError, match=message.replace("(", r"\(")):
        grown(graph, new)


def test_nothing_new_is_refused(graph):
    with pytest.raises(GraphError, match="nothing new: the graph has all of its 2 triples"):
        grown(graph, list(graph.names(graph.valid[:2])))


def test_entities_that_are_numbered_by_type_cannot_be_added(graph):
    typed = replace(graph, types={"even": 0, "odd": 20})
    with pytest.raises(GraphError, match="numbered by type"):
        grown(typed, NEW)
    assert grown(typed, [("e1", "next", "e9")]).graph.types == typed.types


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, None, None),
        ([1.0, 3.0], None, [1, 3, 2, 2]),
        (None, [2.0, 4.0], [3, 3, 2, 4]),
        ([1.0, 3.0], [2.0, 4.0], [1, 3, 2, 4]),
    ],
)
def test_new_triples_without_weights_weigh_the_mean(old, new, expected):
    graph = load_graph({"train": [("a", "r", "b"), ("b", "r", "c")]}, weights=None)
    graph = replace(graph, weights={} if old is None else {"train": torch.tensor(old)})
    rows = [("c", "r", "d"), ("a", "r", "b"), ("d", "r", "a")]
    columns = encode_rows("new", rows)
    if new is not None:
        columns = replace(columns, weight=np.array([new[0], 9.0, new[1]], np.float32))
    weights = extend_graph(graph, columns, "new").graph.weights
    assert (weights["train"].tolist() if weights else None) == expected
