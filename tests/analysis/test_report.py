"""The report: what it holds, runs that lack something, hostile names, the command, and the page in a real browser."""

import base64
import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import pairre
from conftest import QUICK, planted_graph
from pairre.analysis.patterns import FORMULAS, paired_vectors
from pairre.analysis.report import write_report
from pairre.analysis.report.collect import collect
from pairre.analysis.report.entities import entity_map
from pairre.analysis.report.page import page
from pairre.evaluation import calibration_of, rank_both_sides
from pairre.evaluation.answers import best_answers
from pairre.graph import Graph, Vocabulary
from pairre.support.errors import PairREError

HOSTILE = "</script><script>window.hacked=1</script>"
NAMES = ["next", HOSTILE, "beside — рядом 隣"]


PAINTED = """() => {
  const canvas = document.getElementById("map-canvas");
  return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value);
}"""


@pytest.fixture(scope="module")
def run():
    """A quick PairRE on the ring, its relations under names that a page may stumble over, its entities typed."""
    graph = planted_graph()
    is_a = torch.stack([torch.arange(40), torch.full((40,), 3), torch.arange(40) % 2], 1).int()
    relations = Vocabulary([*NAMES, "http://example.org/ns#type"], "relation")
    graph = replace(graph, name="ring <b>", relations=relations, train=torch.cat([graph.train, is_a]))
    return pairre.train(graph, QUICK, progress=False, device="cpu")


def collected(run, split="test"):
    return collect(run, split, "pca", lambda _what, _share: None)


def embedded(text):
    """The data that a page carries."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))


def test_the_page_holds_what_was_measured(run):
    text = page(collected(run))
    data = embedded(text)
    assert data["relations"]["name"][:3] == NAMES
    result = pairre.evaluate(run, by="category")
    for key in ("both", "head", "tail"):
        assert data["evaluation"][key] == pytest.approx(result[key])
    assert data["evaluation"]["by_category"].keys() == result["by_category"].keys()
    assert data["evaluation"]["interval_95"]["mrr"] == pytest.approx(result["interval_95"]["mrr"])
    by_relation = pairre.evaluate(run, by="relation")["by_relation"]
    for name, mrr in zip(data["relations"]["name"], data["relations"]["mrr"], strict=True):
        assert mrr == (pytest.approx(by_relation[name]["both"]["mrr"]) if name in by_relation else None)
    assert [step for step, _ in data["curves"]["valid"]] == [20, 40, 60]
    assert data["patterns"]["inverse"][0]["ids"] == [0, 1]
    assert data["comparison"]["symmetry"]["true"] == 1
    assert len(data["map"]["x"]) == 40


def test_answers_errors_and_reliability_are_those_of_the_run(run):
    graph, data = run.graph, embedded(page(collected(run)))
    known = set(graph.names(torch.cat([graph.train, graph.valid, graph.test])))
    assert len(data["answers"]) >= 2
    for answer in data["answers"]:
        relation = graph.relations[answer["relation"]]
        assert (answer["head"], relation, answer["tail"]) not in known
        [best] = pairre.predict(run, head=answer["head"], relation=relation, k=1)
        assert (best.tail, best.score) == (answer["tail"], pytest.approx(answer["score"], abs=1e-3))
        expected = calibration_of(run).probability(torch.tensor(best.score), torch.tensor(answer["relation"]))
        assert answer["p"] == pytest.approx(expected.item(), abs=1e-3)
    assert [answer["p"] for answer in data["answers"]] == sorted((a["p"] for a in data["answers"]), reverse=True)
    ranks = rank_both_sides(run.model, graph.test, graph.known)
    for error in data["errors"]:
        own = graph.test[:, 1] == error["relation"]
        assert error["rank"] == max(ranks[side].values()[own].max().item() for side in ("head", "tail"))
    scores, relations, true = best_answers(run, "test")
    p = calibration_of(run).probability(scores, relations)
    bins = data["reliability"]["bins"]
    assert sum(count for *_, count in bins) == len(scores)
    assert sum(share * count for _, share, count in bins) == pytest.approx(true.sum().item())
    assert sum(mean * count for mean, _, count in bins) == pytest.approx(p.sum().item())
    assert "base rate" in data["answers_note"]


def test_the_map_is_coloured_by_tail_where_that_says_something(run):
    points = entity_map(run.graph, run.model)
    by_type = points["tail_values"][3]  # e0 and e1 are the tails of all
    assert by_type["names"] == ["e0", "e1"]
    assert [by_type["of"][points["heads"][3].index(i)] for i in range(4)] == [0, 1, 0, 1]
    assert points["tail_values"][0] is None  # each head has a tail of its own
    degree = torch.bincount(run.graph.train[:, [0, 2]].flatten(), minlength=40)[points["labelled"]]
    assert (degree.diff() <= 0).all()


def test_nothing_is_fetched_and_no_name_is_markup(run):
    text = page(collected(run))
    assert HOSTILE not in text
    assert "<title>pairre on ring &lt;b&gt;</title>" in text
    assert text.count("<script") == 2
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//|@import|url\(""", text)


def test_vectors_come_through_in_half_precision(run):
    packed = collected(run)["vectors"]
    for name, expected in paired_vectors(run.model)._asdict().items():
        got = np.frombuffer(base64.b64decode(packed[name]), "<f2").astype(np.float32).reshape(expected.shape)
        np.testing.assert_allclose(got * packed["scale"], expected, rtol=1e-3, atol=1e-6)


def test_large_pages_are_capped(run, monkeypatch):
    monkeypatch.setattr(sys.modules[collect.__module__], "MOST_NUMBERS", 2 * 2 * 16)
    monkeypatch.setattr(sys.modules[entity_map.__module__], "MOST_POINTS", 10)
    values = collected(run)
    assert len(values["vectors"]["relations"]) == 2
    assert "all but 2 less frequent relations" in values["patterns_note"]
    assert values["map_note"].endswith("the 10 most frequent of 40 entities.")
    assert max(p for points in values["map"]["heads"] for p in points) < 10


@pytest.mark.parametrize("missing", ["valid", "test", "valid and test"])
def test_runs_without_a_split_or_a_log(run, missing):
    empty = dict.fromkeys(missing.split(" and "), run.graph.train[:0])
    bare = replace(run, graph=replace(run.graph, **empty), history=[])
    data = embedded(page(collected(bare)))
    assert ("evaluation" in data) == ("test" not in missing)
    assert data["curves"] == {"loss": [], "valid": []}
    if "test" in missing:
        assert data["no_evaluation"].startswith("The test split is empty")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transe", "transr"])
def test_models_without_paired_vectors(name):
    recipe = replace(QUICK, model=replace(QUICK.model, name=name), train=replace(QUICK.train, steps=2))
    run = pairre.train(planted_graph(), recipe, progress=False, device="cpu")
    data = embedded(page(collected(run)))
    assert "vectors" not in data
    assert "comparison" not in data
    (symmetry,) = data["patterns"]["symmetry"]
    assert symmetry["ids"] == [2]
    assert symmetry["confidence"] > 0.7
    assert symmetry["agreement"] is None
    assert "no paired relation vectors" in data["patterns_note"]


def test_one_relation_and_one_triple():
    names = (Vocabulary(["a", "b"], "entity"), Vocabulary(["r"], "relation"))
    triple = torch.tensor([[0, 0, 1]], dtype=torch.int32)
    graph = Graph("tiny", *names, triple, triple[:0], triple[:0])
    recipe = replace(QUICK, model=replace(QUICK.model, dim=1), train=replace(QUICK.train, steps=2))
    values = collected(pairre.train(graph, recipe, progress=False, device="cpu"))
    assert len(values["map"]["y"]) == 2


def test_types_are_found_by_name(run):
    found = entity_map(run.graph, run.model)
    assert found["types"] == ["e0", "e1"]
    assert found["type"] == [0, 1] * 20
    assert "types" not in entity_map(planted_graph(), run.model)


def test_tsne(run):
    pytest.importorskip("sklearn")
    assert len(entity_map(run.graph, run.model, "tsne")["x"]) == 40


# --- the command ---


def refused(result, *words):
    code, printed, said = result
    assert (code, printed) == (2, "")
    assert len(said.splitlines()) == 1, said
    assert all(word in said for word in words), said


def test_the_command(run, call, tmp_path):
    folder, out = run.save(tmp_path / "run"), tmp_path / "report.html"
    code, printed, said = call("report", folder, "--out", out, "--split", "valid", "--device", "cpu")
    assert (code, printed) == (0, f"The report is in {out}.\n")
    assert "ranking the valid split" in said
    assert embedded(out.read_text(encoding="utf-8"))["evaluation"]["split"] == "valid"
    out.write_text("mine")
    refused(call("report", folder, "--out", out), "report.html: there already", "--force")
    assert out.read_text() == "mine"
    assert call("report", folder, "--out", out, "--force")[0] == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "run"]


def test_what_the_command_refuses(run, call, tmp_path, monkeypatch):
    out = tmp_path / "report.html"
    refused(call("report", tmp_path, "--out", tmp_path), "a folder; give the name of a file")
    refused(call("report", tmp_path, "--out", tmp_path / "no" / "report.html"), "there is no folder")
    refused(call("report", tmp_path, "--out", out, "--figures", __file__), "not a folder")
    refused(call("report", tmp_path / "none", "--out", out), "no such run folder")
    for package, options in (("matplotlib", {"figures": tmp_path / "f"}), ("sklearn.manifold", {"method": "tsne"})):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(PairREError, match=re.escape("pip install 'pairre[plots]'")):
                write_report(run, out, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_figures_as_files(run, tmp_path):
    pytest.importorskip("matplotlib")
    files = write_report(run, tmp_path / "report.html", figures=tmp_path / "figures")
    written = {p.name for p in files[1:]}
    assert written == {p.name for p in (tmp_path / "figures").iterdir()}
    assert {"training.png", "training.svg", "categories.png", "inverse.svg", "map.png"} <= written
    assert all(p.stat().st_size > 2000 for p in files[1:])


# --- the page in a browser ---


@pytest.fixture
def browser_page(browser):
    """A new page; what goes wrong in it, and what it fetches, is collected in its `faults`."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.faults = []
    opened.on("console", lambda m: opened.faults.append(m.text) if m.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: opened.faults.append(str(error)))
    opened.on("request", lambda r: None if r.url.startswith("file:") else opened.faults.append(r.url))
    yield opened
    opened.close()


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_in_a_browser(run, browser_page, tmp_path):
    write_report(run, tmp_path / "report.html")
    page = browser_page
    page.goto((tmp_path / "report.html").as_uri())
    assert page.title() == "pairre on ring <b>"
    assert page.locator("#curves path.line").count() == 2
    assert page.locator("#categories-figure rect").count() >= 2
    assert page.locator("#metrics-table tbody tr").count() == 5
    data = embedded((tmp_path / "report.html").read_text(encoding="utf-8"))
    answers = page.locator("#answers-table tbody tr")
    assert answers.count() == len(data["answers"])
    assert answers.first.locator(".share").inner_text() == f"{data['answers'][0]['p']:.2f}"
    assert page.locator("#reliability circle").count() == len(data["reliability"]["bins"])
    page.locator("#reliability circle").first.hover()
    assert "answers" in page.locator("#tip").inner_text()
    assert page.locator("#errors-table tbody tr").count() == len(data["errors"])

    rows = page.locator("#relations-table tbody tr")
    assert rows.count() == 4
    page.fill("#relation-text", "рядом")
    assert rows.count() == 1
    page.fill("#relation-text", "")
    category = rows.first.locator("td").nth(1).inner_text()
    page.select_option("#relation-category", category)
    assert {cell.inner_text() for cell in rows.locator("td:nth-child(2)").all()} == {category}
    page.select_option("#relation-category", "")
    page.click("#relations-table th >> text=relation")
    names = page.locator("#relations-table td:first-child").all_inner_texts()
    assert set(names) == {*NAMES, "http://example.org/ns#type"}
    page.click("#relations-table th >> text=relation")
    assert page.locator("#relations-table td:first-child").all_inner_texts() == names[::-1]

    bars = page.locator("#explorer figure:first-of-type rect.bar")
    assert bars.count() >= 1
    page.click("#pattern-tabs >> text=inverse")
    page.locator("#patterns-table tbody tr td:last-child").first.click()
    assert page.locator("#explorer select").count() == 3
    formula, _, shown = page.locator("#explorer figcaption").first.inner_text().partition(" agreement ")
    assert formula.strip() == FORMULAS["inverse"]
    listed = page.locator("#patterns-table tr.at td").nth(1).inner_text()
    assert float(shown) == pytest.approx(float(listed.split()[0]), abs=0.002)
    page.locator("#explorer select").first.select_option("composition")
    assert page.locator("#explorer select").count() == 4
    assert bars.count() >= 1
    bars.first.hover()
    assert "features" in page.locator("#tip").inner_text()

    page.click("#relations-table >> text=next")
    assert page.locator("#chosen").inner_text().startswith("next")
    assert page.locator("#relations-table tr.at").inner_text().startswith("next")
    assert page.locator("#explorer select").nth(1).locator("option:checked").inner_text() == "next"
    assert page.locator("#map-colour option:checked").inner_text() == "next"
    assert "heads of next" in page.locator("#map-legend").inner_text()
    page.click("#chosen >> text=map")
    x, y = page.evaluate("view[0]")
    page.hover("#map-canvas", position={"x": x, "y": y})
    assert page.locator("#tip").inner_text().startswith("e")
    assert page.evaluate(PAINTED)
    page.select_option("#map-colour", "3")
    assert page.locator("#map-legend span").all_inner_texts()[1:] == ["e0", "e1"]
    page.select_option("#map-colour", "type")
    assert page.locator("#map-legend span").count() == 2
    assert page.evaluate("window.hacked") is None
    page.set_viewport_size({"width": 380, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    assert page.faults == []


@pytest.mark.browser
def test_a_pattern_that_the_triples_contradict_has_no_badge(run, browser_page, tmp_path):
    values = collected(run)
    badges = {(kind, i) for kind, rows in values["patterns"].items() for p in rows for i in p["ids"] if p["confidence"]}
    values["patterns"]["symmetry"].append({"ids": [0], "agreement": 0.99, "confidence": None, "vectors": True})
    assert ("symmetry", 2) in badges
    assert ("symmetry", 0) not in badges
    (tmp_path / "page.html").write_text(page(values), encoding="utf-8")
    browser_page.goto((tmp_path / "page.html").as_uri())
    assert browser_page.locator("#relations-table .badge").count() == len(badges)
    assert "0.990" in browser_page.locator("#patterns-table").inner_text()  # the table still lists it
    assert browser_page.faults == []


@pytest.mark.browser
def test_pages_with_less_in_a_browser(run, browser_page, tmp_path):
    """Without paired vectors, and without anything to rank: sections that need them are gone, and nothing breaks."""
    recipe = replace(QUICK, model=replace(QUICK.model, name="transe"), train=replace(QUICK.train, steps=2))
    graph = planted_graph()
    other = pairre.train(graph, recipe, progress=False, device="cpu")
    write_report(replace(other, history=[], graph=replace(graph, test=graph.test[:0])), tmp_path / "less.html")
    browser_page.goto((tmp_path / "less.html").as_uri())
    assert browser_page.locator("#explorer").count() == 0
    assert browser_page.locator("#categories").count() == 0
    assert browser_page.locator("#errors").count() == 0
    assert browser_page.locator("#reliability").count() == 0
    assert browser_page.locator("#answers-table tbody tr").count() >= 1
    assert "split is empty" in browser_page.locator("#metrics-note").inner_text()
    assert "no log" in browser_page.locator("#curves").inner_text()
    browser_page.click("#relations-table >> text=beside")
    assert browser_page.locator("#relations-table tr.at").count() == 1
    assert browser_page.faults == []
