"""Answer sets by name."""

import pytest

import pairre
from conftest import QUICK, planted_graph
from pairre.inference import answer_set
from pairre.support.errors import PairREError


@pytest.fixture(scope="module")
def run():
    return pairre.train(planted_graph(), QUICK, progress=False, device="cpu")


def test_it_is_the_best_answers_and_says_what_it_promises(run):
    found = answer_set(run, head="e3", relation="beside", coverage=0.5)
    assert found.answers == pairre.predict(run, head="e3", relation="beside", k=found.basis.k)
    assert str(found) == (
        f"A new true answer is among the best {found.basis.k} with a probability of 0.5 or more "
        "(by 16 validation ranks of all relations)."
    )
    more = answer_set(run, tail="e3", relation="beside", coverage=0.9)
    assert len(more.answers) > 1
    assert {answer.tail for answer in more.answers} == {"e3"}


@pytest.mark.parametrize("names", [{"head": "e1", "tail": "e2"}, {"relation": "next"}, {"head": "e1"}, {}])
def test_queries_without_a_relation_or_an_anchor_are_refused(run, names):
    with pytest.raises(PairREError, match="give the relation and either the head or the tail"):
        answer_set(run, **names)


def test_the_option_of_predict(run, call, tmp_path):
    folder = run.save(tmp_path / "run")
    code, printed, said = call("predict", folder, "--head", "e3", "--relation", "beside", "--coverage", "0.5")
    assert code == 0
    assert str(answer_set(run, head="e3", relation="beside", coverage=0.5)) in said
    assert "e3" in printed
    for wrong, message in (("2", "a number between 0 and 1 expected"), ("0.99", "choose a lower coverage")):
        code, printed, said = call("predict", folder, "--head", "e3", "--relation", "beside", "--coverage", wrong)
        assert (code, printed) == (2, "")
        assert message in said
    code, printed, said = call("predict", folder, "--head", "e3", "--tail", "e4", "--coverage", "0.5")
    assert (code, "give the relation" in said) == (2, True)
    code, printed, said = call(
        "predict", folder, "--head", "e3", "--relation", "beside", "--coverage", "0.5", "--known"
    )
    assert (code, "leave out the other options" in said) == (2, True)
