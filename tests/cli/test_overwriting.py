"""No command overwrites a file without --force, not even the one that it reads."""

import pytest

from pairre.models import PairRE
from pairre.rules import Rule, write_rules
from pairre.runs import Run


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A run, a graph, rules and queries, each with the name that a command line below has for it."""
    from conftest import QUICK, planted_graph

    graph, folder = planted_graph(), tmp_path_factory.mktemp("inputs")
    model = PairRE(graph.num_entities, graph.num_relations, QUICK.model.dim)
    model.initialise(0.5, 0)
    run = Run(graph, QUICK, model).save(folder / "ring")
    write_rules(folder / "rules.tsv", [Rule(("next",), "previous", "inverse", 0.9)])
    (folder / "queries.csv").write_text("head,relation,tail\ne0,next,\n")
    (folder / "claims.csv").write_text("head,relation,tail\ne0,next,e1\n")
    return {"RUN": run, **{name: folder / name for name in ("rules.tsv", "queries.csv", "claims.csv")}}


COMMANDS = [
    "predict RUN --file queries.csv --out there.csv",
    "predict RUN --head e0 --relation next --out there.csv",
    "score RUN claims.csv --out there.csv",
    "evaluate RUN --json there.csv",
    "discover RUN --out there.csv",
    "export RUN --out there.npz",
    "rules mine RUN --out there.csv",
    "rules apply RUN rules.tsv --out there.csv",
    "rules evaluate RUN rules.tsv --json there.csv",
    "report RUN --out there.csv",
    "reproduce statistics --json there.csv --out tables",
]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_file_that_is_there_is_kept(call, inputs, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    words = [inputs.get(word, word) for word in line.split()]
    there = tmp_path / next(word for word in line.split() if word.startswith("there."))
    there.write_text("kept")
    code, printed, said = call(*words)
    assert (code, printed) == (2, "")
    assert said == f"pairre: {there.name}: there already; write to another file, or overwrite it with --force\n"
    assert there.read_text() == "kept"
    assert list(tmp_path.iterdir()) == [there]
    if words[0] not in ("report", "reproduce"):  # these take long, and have tests of their own
        assert call(*words, "--force")[0] == 0
        assert there.read_bytes() != b"kept"


def test_queries_outlive_their_answers(call, inputs):
    queries = inputs["queries.csv"]
    before = queries.read_text()
    assert call("predict", inputs["RUN"], "--file", queries, "--out", queries)[0] == 2
    assert queries.read_text() == before


def test_figures_that_are_there_are_kept(call, inputs, tmp_path):
    figure = tmp_path / "figures" / "loss.svg"
    figure.parent.mkdir()
    figure.write_text("kept")
    code, _, said = call("report", inputs["RUN"], "--out", tmp_path / "report.html", "--figures", figure.parent)
    assert (code, figure.read_text()) == (2, "kept")
    assert "loss.svg: there already" in said
