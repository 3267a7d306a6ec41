"""Relations that are left out, in every format and in all splits together, named as people type them."""

from __future__ import annotations

import pytest

from pairre.graph import load_graph
from pairre.support.errors import GraphError, NameNotFoundError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.tsv").write_text("a\tlikes\tb\nb\t/people/knows\tc\nb\tlikes\tc\nd\thates\ta\n")
    (tmp_path / "valid.tsv").write_text("a\tHates\tc\n")
    (tmp_path / "test.tsv").write_text("c\tlikes\ta\n")
    return tmp_path


@pytest.mark.parametrize(
    ("choice", "sizes", "relations"),
    [
        ({"only": ["likes"]}, (2, 0, 1), ["likes"]),
        ({"exclude": ["likes"]}, (2, 1, 0), ["/people/knows", "hates", "Hates"]),
        ({"only": ("Knows", "LIKES"), "exclude": "likes"}, (1, 0, 0), ["/people/knows"]),
        ({"exclude": ["Hates"]}, (4, 0, 1), ["likes", "/people/knows", "hates"]),
    ],
)
def test_relations_are_selected_in_all_splits(folder, choice, sizes, relations):
    graph = load_graph(folder, **choice)
    assert (len(graph.train), len(graph.valid), len(graph.test)) == sizes
    assert list(graph.relations.names.to_pylist()) == relations
    plain = load_graph(folder)
    for split in ("train", "valid", "test"):
        kept = [row for row in plain.names(plain.split(split)) if row[1] in relations]
        assert list(graph.names(graph.split(split))) == kept
    used = {
        name for split in ("train", "valid", "test") for h, _, t in graph.names(graph.split(split)) for name in (h, t)
    }
    assert set(graph.entities.names.to_pylist()) == used
    assert graph.annotations.skipped == {"other relations": 6 - sum(sizes)}


@pytest.mark.parametrize(
    ("choice", "error", "message"),
    [
        ({"only": ["like"]}, NameNotFoundError, "no relation named 'like'; nearest: 'likes'"),
        ({"exclude": ["HATES"]}, NameNotFoundError, "relation 'HATES' may mean 'hates', 'Hates'; write one by name"),
        ({"only": ["Hates"]}, GraphError, "no triples are left by --only and --exclude"),
    ],
)
def test_what_fits_no_relation_is_refused(folder, choice, error, message):
    with pytest.raises(error, match=message):
        load_graph(folder, **choice)


def test_a_stored_graph_is_not_selected_from(folder, tmp_path):
    load_graph(folder).save(tmp_path / "graph")
    with pytest.raises(GraphError, match="--only and --exclude are for files of triples"):
        load_graph(tmp_path / "graph", only=["likes"])


def test_weights_stay_with_their_triples(tmp_path):
    (tmp_path / "g.csv").write_text("head,relation,tail,weight\na,x,b,1\nb,y,c,2\nc,x,a,3\n")
    graph = load_graph(tmp_path / "g.csv", only="x", split=(1, 0, 0))
    assert list(graph.names(graph.train)) == [("a", "x", "b"), ("c", "x", "a")]
    assert graph.weights["train"].tolist() == [1, 3]
