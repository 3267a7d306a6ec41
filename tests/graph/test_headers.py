"""A header is never silently a triple: known titles, first rows that stand alone, and who is asked about them."""

from __future__ import annotations

import logging

import pytest

from pairre.graph import load_graph
from pairre.support.errors import GraphError

ROWS = "a,r,b\nb,r,c\nc,r,a\n"
DOUBTFUL = "origin,kind,goal\n"


@pytest.fixture
def warnings(caplog):
    with caplog.at_level(logging.WARNING, logger="pairre"):
        yield lambda: [r.getMessage() for r in caplog.records if "header" in r.getMessage()]


def load(tmp_path, text, name="g.csv", **options):
    (tmp_path / name).write_text(text)
    return load_graph(tmp_path / name, **options)


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        (":START_ID;:TYPE;:END_ID", "a;r;b\nb;r;c\n"),
        (":START_ID(Person);since:int;:END_ID(City-ID);:TYPE", "a;1;b;r\nb;2;c;r\n"),
        ("id,node1,label,node2", "1,a,r,b\n2,b,r,c\n"),
        ("Node1,Label,Node2,node1;label", "a,r,b,A\nb,r,c,B\n"),
    ],
)
def test_titles_of_neo4j_and_kgtk_are_known(tmp_path, warnings, header, rows):
    graph = load(tmp_path, f"{header}\n{rows}")
    assert sorted(graph.names(graph.train)) == [("a", "r", "b"), ("b", "r", "c")]
    assert warnings() == []


def test_a_doubtful_first_row_is_reported_and_kept(tmp_path, warnings):
    assert len(load(tmp_path, DOUBTFUL + ROWS).train) == 4
    [said] = warnings()
    assert "g.csv: the first row ('origin', 'kind', 'goal') may be a header" in said
    assert "--header or --no-header" in said


@pytest.mark.parametrize(("header", "num"), [(True, 3), (False, 4), (lambda _: True, 3), (lambda _: False, 4)])
def test_an_answer_settles_it(tmp_path, warnings, header, num):
    graph = load(tmp_path, DOUBTFUL + ROWS, header=header)
    assert len(graph.train) == num
    assert (graph.num_entities, graph.num_relations) == ((3, 1) if num == 3 else (5, 2))
    assert warnings() == []


@pytest.mark.parametrize(
    "first",
    ["a,kind,goal\n", "goal,kind,a\n", "origin,r,goal\n", "same,kind,same\n", "head,relation,tail\n", ""],
)
def test_a_row_that_shares_a_name_is_a_triple_and_nobody_is_asked(tmp_path, warnings, first):
    def refuse(question):
        raise AssertionError(question)

    load(tmp_path, first + ROWS, header=refuse)
    load(tmp_path, first + ROWS)
    load(tmp_path, "a,r,b\n", header=refuse)
    load_graph("atlas", header=refuse)
    assert warnings() == []


def test_the_splits_of_a_folder_are_looked_at_together(tmp_path, warnings):
    asked = []
    (tmp_path / "train.csv").write_text(DOUBTFUL + ROWS)
    (tmp_path / "valid.csv").write_text("c,s,b\n")
    (tmp_path / "test.csv").write_text("origin,kind,goal\nb,r,a\n")
    load_graph(tmp_path, header=lambda question: not asked.append(question))
    assert asked == []  # it occurs twice, as a repeated triple would
    (tmp_path / "test.csv").write_text("from here,what,to there\nb,r,a\n")
    graph = load_graph(tmp_path, header=lambda question: not asked.append(question))
    assert [question.split("'")[1] for question in asked] == ["origin", "from here"]
    assert (len(graph.train), len(graph.valid), len(graph.test)) == (3, 1, 1)
    again = load_graph(
        {split: tmp_path / f"{split}.csv" for split in ("train", "valid", "test")}, header=lambda _: True
    )
    assert again.fingerprint == graph.fingerprint


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("head,relation,tail,weight\na,r,b,2\nb,r,c,.5\n", {}, [2, 0.5]),
        (":START_ID,:TYPE,:END_ID,weight:float\na,r,b,2\nb,r,c,0\n", {}, [2, 0]),
        ("head,relation,tail,trust\na,r,b,2\nb,r,c,1e3\n", {"weights": "trust"}, [2, 1000]),
        ("x,y,z,trust\na,r,b,2\nb,r,c,1\n", {"weights": "trust"}, [2, 1]),
        ("a,2,r,b\nb,3,r,c\n", {"weights": 2}, [2, 3]),
        ("0,a,2,r,b\n1,b,3,r,c\n", {"weights": "3", "columns": (2, 4, 5)}, [2, 3]),
        ("head,relation,tail,weight\na,r,b,2\nb,r,c,x\n", {"weights": "none"}, None),
        ("head,weight,tail\na,r,b\nb,r,c\n", {"columns": ("head", "weight", "tail")}, None),
        ('head,relation,tail,weight\n"a\nb",r,c,"2"\nc,r,d,3\n', {}, [2, 3]),
    ],
)
def test_a_column_of_weights(tmp_path, text, options, expected):
    weights = load(tmp_path, text, **options).weights
    assert (sorted(weights["train"].tolist()) if weights else None) == (sorted(expected) if expected else None)


@pytest.mark.parametrize("bad", ["x", "", "nan", "inf", "-1", "1e99", "1_000"])
def test_a_bad_weight_is_refused_with_its_line(tmp_path, bad):
    with pytest.raises(GraphError, match=rf"g\.csv:4: the weight is '{bad}'; a finite number that is not negative"):
        load(tmp_path, f"head,relation,tail,weight\n\na,r,b,1\na,r,c,{bad}\na,r,d,x\n")


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("g.csv", "head,relation,tail,weight\na,r,b,0\nb,r,c,0\n", {}, "the weight of every train triple is 0"),
        ("g.csv", "h,r,t,w\na,r,b,1\n", {"weights": "v"}, "no column 'v' for weight"),
        ("g.csv", "a,r,b,1\n", {"weights": "9"}, "column 9 chosen as weight, but the file has 4 columns"),
        ("g.csv", "a,r,b\n", {"weights": "2"}, "2 columns beside the weight, expected 3"),
        ("g.csv", "h,r,t\na,r,b\n", {"weights": "t"}, "--weights t is the column of the tail"),
        ("g.nt", "<a:a> <a:r> <a:b> .\n", {"weights": "w"}, "files of this format have no column of weights"),
    ],
)
def test_weights_that_are_refused(tmp_path, name, text, options, message):
    with pytest.raises(GraphError) as caught:
        load(tmp_path, text, name, **options)
    assert message in str(caught.value)


def test_repeated_triples_keep_their_largest_weight(tmp_path):
    graph = load(tmp_path, "head,relation,tail,weight\na,r,b,1\nb,r,c,2\na,r,b,4\nb,r,c,1\na,r,b,3\n")
    assert dict(zip(graph.names(graph.train), graph.weights["train"].tolist(), strict=True)) == {
        ("a", "r", "b"): 4,
        ("b", "r", "c"): 2,
    }


def test_weights_of_relations_that_are_left_out_go_with_them(tmp_path):
    text = "head,relation,tail,weight\na,r,b,1\na,s,b,2\nb,r,c,4\nb,s,c,8\n"
    assert sorted(load(tmp_path, text, exclude=["s"]).weights["train"].tolist()) == [1, 4]
    assert sorted(load(tmp_path, text, only=["s"]).weights["train"].tolist()) == [2, 8]
