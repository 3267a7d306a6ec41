"""The page of reproduction: made from the kept files, every large difference explained, nothing left unsaid."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from pairre.studies.reproduce import EXPERIMENTS, find
from pairre.studies.reproduce.experiments import pattern_figures
from pairre.support.errors import PairREError

ROOT = Path(__file__).parents[2]
KEPT = sorted(ROOT.glob("docs/results/reproduce-*.json"))
MACHINE = {"cpu": "x86_64", "cores": 2, "versions": {"pairre": "0.1.0", "torch": "2.13.0", "python": "3.12.3"}}


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module("build_reproduction_page")
    finally:
        sys.path.pop(0)


@pytest.fixture
def build(script, tmp_path, monkeypatch):
    """The script with folders of its own, nothing kept and nothing explained."""
    for name in ("RESULTS", "FIGURES"):
        monkeypatch.setattr(script, name, tmp_path / name.lower())
        (tmp_path / name.lower()).mkdir()
    monkeypatch.setattr(script, "EXPLANATIONS", {})
    return script


def row(label, published=(0.351, 0.001), **means):
    """Three seeds with a standard deviation of 0.001."""
    metrics = {
        name: {"mean": mean, "std": 0.001, "values": [mean - 0.001, mean, mean + 0.001], "published": published}
        for name, mean in means.items()
    }
    return {"label": label, "seconds": 41.7, "device": "NVIDIA H200", "metrics": metrics}


def keep(build, file, date="2026-01-01", settings=(), gpu=None, **tables):
    """Write a file of results; `tables` are rows by the name of an experiment, with _ for -."""
    machine = {**MACHINE, "date": date, **({"gpu": gpu} if gpu else {})}
    made = [{"name": n.replace("_", "-"), "title": "", "remark": "", "rows": rows} for n, rows in tables.items()]
    text = json.dumps({"machine": machine, "settings": list(settings), "tables": made})
    (build.RESULTS / file).write_text(text, encoding="utf-8")


def section(page, name):
    """What the page says of an experiment."""
    found = re.search(rf"^## {re.escape(find(name).title)}\n(.*?)(?=^## |\Z)", page, re.S | re.M)
    assert found is not None, name
    return found[1]


def test_the_committed_page_is_made_from_the_committed_files(script):
    assert (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8") == script.page()


def test_sections_stand_in_the_order_of_the_experiments(build):
    assert re.findall("^## (.*)$", build.page(), re.M) == [experiment.title for experiment in EXPERIMENTS]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_an_experiment_without_file_says_so(build, experiment):
    text = section(build.page(), experiment.name)
    assert f"`pairre reproduce {experiment.name}` has not been run. It needs {experiment.needs}." in text
    absent = {"ogbl-wikikg2", "ogbl-biokg", "db100k"} & {trial.graph for trial in experiment.trials}
    assert ("could not be had where this was run" in text) == bool(absent)
    assert ("tested on data of the same layout" in text) == bool(absent)
    assert experiment.remark in text
    assert "|" not in text


def test_ours_stand_beside_the_paper(build):
    keep(build, "reproduce-a.json", gpu="NVIDIA H200", fb15k_237=[row("PairRE", mrr=0.352, hits_at_1=0.3515)])
    text = section(build.page(), "fb15k-237")
    seeds = "0.3520 ± 0.0010 (3 seeds) | 0.3510 ± 0.0010 | +0.0010 | 42 s | NVIDIA H200"
    assert f"| PairRE | MRR | {seeds} |" in text
    assert "|  | Hits@1 | 0.3515 ± 0.0010 (3 seeds) | 0.3510 ± 0.0010 | +0.0005 |  |  |" in text
    where = "NVIDIA H200, pairre 0.1.0, torch 2.13.0, Python 3.12.3 ([values](results/reproduce-a.json))."
    assert f"`pairre reproduce fb15k-237`, 2026-01-01, {where}" in text
    assert "not been run" not in text
    assert "*" not in text


def test_a_run_with_other_settings_says_so(build):
    keep(build, "reproduce-a.json", settings=["train.steps=20"], fb15k=[row("PairRE", mrr=0.351)])
    text = section(build.page(), "fb15k")
    assert "`pairre reproduce fb15k --set train.steps=20`, 2026-01-01, 2 CPU cores, " in text


def test_a_large_difference_without_explanation_ends_the_script(build, monkeypatch):
    rows = [row("PairRE", mrr=0.36, hits_at_1=0.342, hits_at_3=0.351)]
    keep(build, "reproduce-a.json", fb15k=rows)
    with pytest.raises(SystemExit) as stop:
        build.page()
    message = str(stop.value)
    assert "no word why in EXPLANATIONS of build_reproduction_page.py" in message
    assert "fb15k, PairRE, mrr: 0.36, published 0.351" in message
    assert "fb15k, PairRE, hits_at_1: 0.342, published 0.351" in message
    assert "hits_at_3" not in message
    monkeypatch.setitem(build.EXPLANATIONS, ("fb15k", "PairRE", "mrr"), "Luck.")
    monkeypatch.setitem(build.EXPLANATIONS, ("fb15k-237", "PairRE", "*"), "Of another table.")
    with pytest.raises(SystemExit) as stop:
        build.page()
    assert "hits_at_1" in str(stop.value)
    assert "mrr" not in str(stop.value)


def test_an_explained_difference_is_marked_and_explained(build, monkeypatch):
    rows = [row("TransE", (0.294, None), mrr=0.329, hits_at_1=0.25, hits_at_10=0.2945), row("OTE", mrr=0.34)]
    keep(build, "reproduce-a.json", baselines=rows)
    monkeypatch.setitem(build.EXPLANATIONS, ("baselines", "TransE", "*"), "Another loss.")
    monkeypatch.setitem(build.EXPLANATIONS, ("baselines", "OTE", "*"), "Not this.")
    monkeypatch.setitem(build.EXPLANATIONS, ("baselines", "OTE", "mrr"), "Fewer steps.")
    text = section(build.page(), "baselines")
    assert "| 0.2940 | +0.0350 * |" in text
    assert "| 0.2940 | +0.0005 |" in text
    assert "- \\* TransE, MRR, Hits@1: Another loss.\n- \\* OTE, MRR: Fewer steps.\n" in text
    assert "Not this." not in text


def test_the_newest_date_wins_and_then_the_last_name(build):
    def shown(name):
        return re.search(r"results/(.*?)\)", section(build.page(), name))[1]

    keep(build, "reproduce-z.json", "2026-01-01", fb15k=[row("PairRE", mrr=0.351)], sports=[row("PairRE", mrr=0.351)])
    keep(build, "reproduce-a.json", "2026-01-02", fb15k=[row("PairRE", mrr=0.352)])
    assert shown("fb15k") == "reproduce-a.json"
    assert "0.3520" in section(build.page(), "fb15k")
    assert shown("sports") == "reproduce-z.json"  # of each file what no newer one has
    keep(build, "reproduce-b.json", "2026-01-02", fb15k=[row("PairRE", mrr=0.3505)])
    assert shown("fb15k") == "reproduce-b.json"
    keep(build, "other-c.json", "2026-01-03", fb15k=[row("PairRE", mrr=0.9)])
    assert shown("fb15k") == "reproduce-b.json"


def test_rows_that_are_missing_are_named(build):
    keep(build, "reproduce-a.json", sports=[row("PairRE", mrr=0.351)], statistics=[row("fb15k", relations=0.351)])
    page = build.page()
    assert "Left out: PairRE+rule.\n" in section(page, "sports")
    text = section(page, "statistics")
    assert (
        "Left out: ogbl-wikikg2, ogbl-biokg, fb15k-237, db100k, sports. The data of ogbl-wikikg2, the data of" in text
    )


def test_figures_are_shown_where_they_are_kept(build):
    keep(build, "reproduce-a.json", patterns=[row("symmetry of spouse", (None, None), agreement=0.9)])
    assert "![" not in build.page()
    assert "Left out" not in section(build.page(), "patterns")
    for name in (*pattern_figures()[:2], "loss"):
        (build.FIGURES / f"{name}.png").touch()
    shown = re.findall(r"!\[.*?\]\((.*?)\)", section(build.page(), "patterns"))
    assert shown == ["figures/1-symmetry.png", "figures/2-symmetry.png"]
    assert "![" not in section(build.page(), "fb15k")


def test_a_table_of_no_experiment_is_refused(build):
    keep(build, "reproduce-a.json", fb15=[])
    with pytest.raises(PairREError, match="no such experiment"):
        build.page()


def test_explanations_are_of_rows_that_there_are(script):
    rows = {(e.name, trial.label) for e in EXPERIMENTS for trial in e.trials}
    metrics = {e.name: {"*", *e.metrics} for e in EXPERIMENTS}
    for experiment, label, metric in script.EXPLANATIONS:
        assert (experiment, label) in rows
        assert metric in metrics[experiment]


def test_every_system_of_other_papers_is_explained(script):
    assert all(("baselines", trial.label, "*") in script.EXPLANATIONS for trial in find("baselines").trials)


@pytest.mark.parametrize("file", KEPT, ids=lambda f: f.stem)
def test_kept_files_have_the_figures_that_are_declared_as_published(file):
    for table in json.loads(file.read_text(encoding="utf-8"))["tables"]:
        declared = {trial.label: trial.published or {} for trial in find(table["name"]).trials}
        for kept in table["rows"]:
            for metric, values in kept["metrics"].items():
                figure = declared.get(kept["label"], {}).get(metric, (None, None))
                assert tuple(values["published"]) == figure, (table["name"], kept["label"], metric)
