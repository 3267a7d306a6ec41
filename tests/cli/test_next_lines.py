"""The commands that another command suggests: they read the same graph, and they work."""

import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from pairre.cli.app import load_command
from pairre.cli.options import reading_words
from pairre.cli.source_options import NO_OPTIONS, SourceOptions

SMALL = ["--set", "model.dim=8", "--set", "train.steps=20", "--set", "sampling.negatives=4", "--set", "train.batch=16"]
PLAIN = {"columns": None, "header": None, "delimiter": None, "split": "90/5/5", "seed": 0, "unverified": False}
SOURCE = SourceOptions("trust", [Path("a b.csv"), Path("c.csv")], Path("t.csv"), "de", ["x"], ["<http://e/#y>"], True)


@pytest.mark.parametrize(
    ("reading", "source"),
    [
        ({}, NO_OPTIONS),
        ({"columns": "from here,type,to", "header": True, "delimiter": "\t"}, NO_OPTIONS),
        ({"header": False, "split": "80/10/10", "seed": 3, "unverified": True}, SOURCE),
        ({}, SourceOptions(sparql="http://e.org/?a&b", query=Path("q.rq"))),
    ],
)
def test_options_of_reading_are_those_that_were_given(reading, source):
    words = reading_words(**PLAIN | reading, source=source)
    line = shlex.split(" ".join(["GRAPH", *words, "--out", "RUN"]).replace("$'\\011'", "'\t'"))
    params = load_command("train").make_context("train", line).params
    wanted = {"split_seed" if name == "seed" else name: value for name, value in (PLAIN | reading).items()}
    assert {name: params[name] for name in wanted} == wanted
    for option in fields(SourceOptions):
        given = params[option.name]
        assert (list(given) if isinstance(given, tuple | list) and given else given or None) == (
            getattr(source, option.name) or None
        ), option.name
    assert bool(words) == ((reading, source) != ({}, NO_OPTIONS))


def test_the_next_line_of_tune_reads_the_same_graph(call, tmp_path):
    pytest.importorskip("optuna")
    rows = "".join(f"{i};e{i};next;e{(i + 1) % 12}\n" for i in range(12))
    (tmp_path / "g.csv").write_text("no;from here;kind;to\n" + rows)
    reading = ["--columns", "from here,kind,to", "--delimiter", ";", "--split", "50/25/25"]
    command = ("tune", tmp_path / "g.csv", "--out", tmp_path / "tuned", "--trials", "1", *reading, *SMALL)
    code, printed, said = call(*command)
    assert code == 0, said
    assert f"pairre train {tmp_path / 'g.csv'} {shlex.join(reading)} --recipe" in printed


@pytest.mark.parametrize(
    ("split", "wanted"),
    [("100/0/0", None), ("50/50/0", "--split valid --by category"), ("50/0/50", "--by category")],
)
def test_only_a_split_with_triples_is_proposed_for_evaluation(call, tmp_path, split, wanted):
    (tmp_path / "g.csv").write_text("".join(f"e{i},next,e{(i + 1) % 12}\n" for i in range(12)) * 2)
    run = tmp_path / "run"
    code, printed, said = call("train", tmp_path / "g.csv", "--split", split, "--out", run, *SMALL)
    assert code == 0, said
    proposed = [line for line in printed.splitlines() if line.startswith("  pairre evaluate")]
    assert proposed == ([] if wanted is None else [f"  pairre evaluate {run} {wanted}"])
    for line in proposed:
        assert call(*shlex.split(line)[1:])[0] == 0
