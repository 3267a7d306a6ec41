"""Reproduction: tables are declared whole, runs are kept and used again, and ours stand beside the published."""

import datetime
import json
from dataclasses import replace

import pytest
import torch

from pairre import evaluate, load_run, merge
from pairre.settings import load_recipe, override
from pairre.studies.reproduce import EXPERIMENTS, Experiment, Trial, find, markdown, reproduce
from pairre.studies.reproduce import run as reproduction
from pairre.studies.reproduce.page import beyond, cells
from pairre.support.errors import PairREError

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


def test_merged_rows_take_the_runs_that_are_there(sports, monkeypatch):
    one = Trial("one model", "sports", "sports")
    table = Experiment("both", "Both", (one, replace(one, label="two merged", members=2)), ("mrr",))
    monkeypatch.setattr(reproduction, "EXPERIMENTS", (table,))
    trained = []
    real = reproduction.train_seeds
    monkeypatch.setattr(reproduction, "train_seeds", lambda *a, **k: trained.append(k["seeds"]) or real(*a, **k))
    rows = reproduce("both", sports, seeds=3, settings=QUICK, progress=False, device="cpu").rows
    assert trained == [[0, 1, 2], [3], [4, 5]]
    place = next(sports.glob("sports-sports-*"))
    seeds = [[load_run(place / f"seed-{seed}", "cpu") for seed in pair] for pair in ((0, 1), (2, 3), (4, 5))]
    assert rows[1].ours["mrr"] == [evaluate(merge(pair))["both"]["mrr"] for pair in seeds]
    assert rows[1].seconds == pytest.approx(sum(_seconds(place / f"seed-{seed}") for seed in range(6)) / 3)
    (place / "merged-2-3" / "reproduce.json").unlink()  # cut off
    again = reproduce("both", sports, seeds=3, settings=QUICK, progress=False, device="cpu").rows
    assert (again[1].ours, len(trained)) == (rows[1].ours, 3)


def _seconds(run):
    return json.loads((run / "reproduce.json").read_text(encoding="utf-8"))["seconds"]


def test_statistics_leave_out_what_is_not_to_be_had(sports, monkeypatch):
    said = []
    monkeypatch.setattr(reproduction, "load_graph", _only_sports(reproduction.load_graph))
    result = reproduce("statistics", sports, notify=said.append)
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


def test_all_tables_go_into_one_file_fit_to_be_kept(sports, call, monkeypatch, tmp_path):
    monkeypatch.setattr(reproduction, "load_graph", _only_sports(reproduction.load_graph))
    quick = [part for setting in QUICK for part in ("--set", setting)]
    names = ["sports", "fb15k", "statistics"]
    where = ["--out", sports, "--seeds", 1, "--device", "cpu", *quick, "--json"]
    code, out, err = call("reproduce", *names, *where, tmp_path / "kept.json")
    assert code == 2
    assert "left out: fb15k" in err
    assert "PairRE+rule" in out
    text = (tmp_path / "kept.json").read_text(encoding="utf-8")
    kept = json.loads(text)
    assert [table["name"] for table in kept["tables"]] == ["sports", "statistics"]
    assert kept["settings"] == list(QUICK)
    assert kept["machine"].keys() == {"date", "cpu", "cores", "versions"}
    assert kept["machine"]["date"] == datetime.date.today().isoformat()
    assert {"pairre", "torch", "python"} <= kept["machine"]["versions"].keys()
    assert str(tmp_path) not in text
    alone = json.loads((sports / "statistics.json").read_text(encoding="utf-8"))
    assert alone == {"machine": kept["machine"], "settings": list(QUICK), **kept["tables"][1]}
    code, out, _ = call("reproduce", "sports", *where, "-")
    assert code == 0
    assert json.loads(out)["tables"] == kept["tables"][:1]


def test_the_gpu_is_named(monkeypatch):
    monkeypatch.setattr(reproduction, "pick_device", torch.device)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"a {device}")
    assert reproduction.machine("cuda:0")["gpu"] == "a cuda:0"
    assert "gpu" not in reproduction.machine("cpu")


@pytest.mark.parametrize(
    ("ours", "published", "star"),
    [
        ((0.461, 0.004), (0.47, 0.003), False),
        ((0.459, 0.004), (0.47, 0.003), True),
        ((0.459, None), (0.47, 0.003), True),
        ((0.465, None), (0.47, 0.003), False),
        ((0.459, 0.004), (0.47, None), True),
        ((0.481, 0.004), (0.47, None), True),
        ((0.459, 0.0), (0.47, None), True),
        ((0.459, None), (0.47, None), False),
        ((0.459, 0.004), (None, None), False),
    ],
)
def test_a_star_is_beyond_two_deviations_of_both(ours, published, star):
    values = {"mean": ours[0], "std": ours[1], "values": [ours[0]], "published": published}
    assert beyond(values) is star
    row = {"label": "PairRE", "seconds": None, "device": "", "metrics": {"mrr": values}}
    assert next(cells({"rows": [row]}))[4].endswith(" *") is star


def test_sizes_are_whole_numbers():
    sizes = {"valid": 0.0, "relations": 4.0, "train": 1_312.0}
    row = reproduction.Row("sports", {k: [v] for k, v in sizes.items()}, {k: (v - 1, None) for k, v in sizes.items()})
    shown = [cell[2:5] for cell in cells({"rows": [row.as_dict()]})]
    assert shown == [("0", "-1", "+1"), ("4", "3", "+1"), ("1,312", "1,311", "+1")]


def test_the_list_and_unknown_names(call):
    code, out, _ = call("reproduce", "--list")
    assert code == 0
    assert all(experiment.name in out for experiment in EXPERIMENTS)
    code, _, err = call("reproduce", "sprots")
    assert code == 2
    assert "did you mean 'sports'" in err
    with pytest.raises(PairREError, match="no such experiment"):
        find("nothing")
