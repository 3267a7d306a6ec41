"""Reproduction: tables are declared whole, runs are kept and used again, and ours stand beside the published."""

import json

import pytest

from pairre.errors import PairREError
from pairre.recipe import load_recipe, override
from pairre.reproduce import EXPERIMENTS, find, markdown, reproduce
from pairre.reproduce import run as reproduction

QUICK = ("train.steps=20", "train.batch=32", "model.dim=8", "train.validate_every=20")


@pytest.fixture
def sports(graph, tmp_path, monkeypatch):
    """A small graph that goes by the name of Sports, with its relations."""
    names = ["concept:coachesteam", "concept:personbelongstoorganization", "concept:athleteplaysforteam"]
    folder = tmp_path / "data" / "sports"
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        rows = [f"e{h}\t{names[r]}\te{t}\n" for h, r, t in graph.split(split).tolist()]
        if split == "train":
            rows.append("e0\tconcept:athleteledsportsteam\te5\n")
        (folder / f"{split}.tsv").write_text("".join(rows), encoding="utf-8")
    monkeypatch.setenv("PAIRRE_DATA", str(folder.parent))
    return tmp_path / "runs"


def test_every_recipe_of_every_table_is_there():
    assert len({experiment.name for experiment in EXPERIMENTS}) == len(EXPERIMENTS)
    for experiment in EXPERIMENTS:
        for trial in experiment.trials:
            if trial.recipe:
                override(load_recipe(trial.recipe), trial.settings)
            assert set(trial.published or {}) <= {
                "mr",
                *experiment.metrics,
                "mrr",
                "hits_at_1",
                "hits_at_3",
                "hits_at_10",
            }


def test_a_table_has_ours_beside_the_published(sports):
    result = reproduce("sports", sports, seeds=2, settings=QUICK, progress=False, device="cpu")
    plain, tied = result.rows
    assert plain.published["mrr"] == (0.468, 0.003)
    assert len(tied.ours["hits_at_1"]) == 2
    assert plain.ours != tied.ours  # the rules are followed
    text = markdown(result.as_dict())
    assert "| PairRE+rule | MRR |" in text
    assert "0.4750 ± 0.0030" in text
    assert "(2 seeds)" in text


def test_runs_are_used_again_and_go_on(sports, monkeypatch):
    first = reproduce("sports", sports, seeds=1, settings=QUICK, progress=False, device="cpu")
    trained = []
    real = reproduction.train_seeds
    monkeypatch.setattr(reproduction, "train_seeds", lambda *a, **k: trained.append(k["seeds"]) or real(*a, **k))
    again = reproduce("sports", sports, seeds=1, settings=QUICK, progress=False, device="cpu")
    assert trained == []
    assert again.as_dict() == first.as_dict()
    cut_off = next(sports.glob("*tie*/seed-0"))
    (cut_off / "reproduce.json").unlink()
    (cut_off / "metrics.json").unlink()
    more = reproduce("sports", sports, seeds=2, settings=QUICK, progress=False, device="cpu")
    assert trained == [[1], [0, 1]]
    assert more.rows[1].ours["mrr"][0] == first.rows[1].ours["mrr"][0]


def test_statistics_leave_out_what_is_not_to_be_had(sports, monkeypatch):
    said = []
    monkeypatch.setattr(reproduction, "load_graph", _only_sports(reproduction.load_graph))
    result = reproduce("statistics", sports, say=said.append)
    assert [row.label for row in result.rows] == ["sports"]
    assert any("fb15k is left out: not here" in text for text in said)


def _only_sports(real):
    def load(name):
        if name != "sports":
            raise PairREError("not here")
        return real(name)

    return load


def test_the_command_writes_tables(sports, call):
    quick = [part for setting in QUICK for part in ("--set", setting)]
    code, out, _ = call("reproduce", "sports", "--out", sports, "--seeds", 1, "--device", "cpu", *quick)
    assert code == 0
    assert "PairRE+rule" in out
    kept = json.loads((sports / "sports.json").read_text(encoding="utf-8"))
    assert kept["rows"][0]["metrics"]["mrr"]["published"] == [0.468, 0.003]
    assert (sports / "sports.md").read_text(encoding="utf-8").startswith("## Sports")


def test_the_list_and_unknown_names(call):
    code, out, _ = call("reproduce", "--list")
    assert code == 0
    assert all(experiment.name in out for experiment in EXPERIMENTS)
    code, _, err = call("reproduce", "sprots")
    assert code == 2
    assert "did you mean 'sports'" in err
    with pytest.raises(PairREError, match="no such experiment"):
        find("nothing")
