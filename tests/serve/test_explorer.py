"""The explorer in a real browser, against a real server: every page and action."""

import csv
import io
import json
import re

import pytest

from .browsing import fetched, focused, go, settle, shown

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# --- pages ---


def test_the_overview_and_its_search(opened, site):
    page, about = opened(), fetched(site, "")
    assert page.title() == "atlas – atlas – pairre"
    assert page.locator("h1").inner_text() == "atlas"
    cards = dict(zip(shown(page.locator("dt")), shown(page.locator("dd")), strict=True))
    assert cards["entities"] == f"{about['num_entities']:,}"
    assert shown(page.locator(".questions a")) == [question["text"] for question in about["questions"]]
    assert shown(page.locator(".chips a")) == [ref["shown"] for ref in about["sample_entities"][0]["entities"]]
    ranked = [row["relation"]["shown"] for row in about["best_relations"] + about["worst_relations"]]
    assert shown(page.locator(".columns").first.locator("tbody td:first-child")) == ranked
    assert page.locator("figure circle").count() >= 1

    field, options = page.locator(".hero input"), page.locator(".hero [role=option]")
    field.press_sequentially("belize")
    options.first.wait_for()
    assert field.get_attribute("aria-expanded") == "true"
    assert shown(options)[0].startswith("Belize")
    field.press("ArrowDown")
    assert page.locator(f"#{field.get_attribute('aria-activedescendant')}").get_attribute("aria-selected") == "true"
    field.press("Escape")
    assert options.count() == 0 or options.first.is_hidden()
    field.fill("")
    field.press_sequentially("Beliez")  # with a typing error
    options.first.wait_for()
    field.press("ArrowDown")
    field.press("Enter")
    page.locator("h1", has_text="Belize").wait_for()
    settle(page)
    assert page.url.endswith("#/entity?name=Belize")
    assert focused(page) == "Belize"
    page.go_back()
    page.locator(".hero").wait_for()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.closest('#finder') !== null")
    page.keyboard.type("capital_of")
    page.locator("#finder [role=option]").first.wait_for()
    page.keyboard.press("Enter")
    page.locator("h1", has_text="capital_of").wait_for()
    settle(page)


def test_an_entity_with_its_reasons(opened, site):
    page, about = opened("#/entity?name=France"), fetched(site, "/entity", name="France")
    assert page.locator(".about").inner_text().strip() == f"{about['num_facts']} known facts"
    first = about["groups"][0]
    group = page.locator(".group").first
    assert first["relation"]["shown"] in group.locator("h3").inner_text()
    assert shown(group.locator(".facts a")) == [fact["entity"]["shown"] for fact in first["facts"][:10]]
    assert shown(page.locator(".beside ol.plain a")) == [one["entity"]["shown"] for one in about["similar"]]

    likely = page.locator(".likely li").first
    chance = likely.locator(".chance")
    assert re.fullmatch(r"probability \d\.\d\d, base rate \d\.\d\d", chance.locator(".hidden-text").inner_text())
    assert f"base rate, {first['likely'][0]['base_rate']:.2f}:" in page.locator(".lead").first.inner_text()
    button = likely.locator(".why-button")
    assert button.get_attribute("aria-expanded") == "false"
    button.click()
    panel = page.locator(f"#{button.get_attribute('aria-controls')}")
    panel.locator(".why-title, .empty").first.wait_for()
    assert button.get_attribute("aria-expanded") == "true"
    assert "rank" in panel.inner_text() or "similarity" in panel.inner_text() or "confidence" in panel.inner_text()
    button.click()
    assert panel.is_hidden()

    go(page, "#/entity?name=Latin%20script")
    group = fetched(site, "/entity", name="Latin script")["groups"][0]
    known = page.locator(".known").first  # of the relation with the most facts
    known.locator(".more").click()
    assert known.locator("li").count() == len(group["facts"])
    known.locator(".more").click()
    known.locator(".more").wait_for(state="detached")
    assert known.locator("li").count() == min(200, group["num_facts"])

    go(page, "#/entity?name=France")
    more = page.locator(".show-all")
    before = page.locator(".group:visible").count()
    more.click()
    assert page.locator(".group:visible").count() > before
    page.fill("[aria-label='Filter by relation']", "borders")
    assert all("borders" in text for text in shown(page.locator(".group:visible h3")))
    page.fill("[aria-label='Filter by relation']", "no such relation")
    assert page.locator(".group:visible").count() == 0


def test_the_neighbourhood_can_be_walked(opened, site):
    page, about = opened("#/entity?name=Belize"), fetched(site, "/neighbourhood", name="Belize")
    page.locator(".neighbourhood .stop").first.wait_for()
    others = {edge["head"] for edge in about["edges"]} | {edge["tail"] for edge in about["edges"]}
    assert page.locator(".neighbourhood .stop").count() == len(others) - 1
    assert page.locator(".neighbourhood .edge.known").count() >= 1
    predicted = [edge for edge in about["edges"] if edge["predicted"]]
    assert bool(predicted) == (page.locator(".neighbourhood .edge.predicted").count() > 0)
    dashes = page.locator(".legend .edge.predicted").evaluate("node => getComputedStyle(node).strokeDasharray")
    assert dashes != "none"
    middle = page.locator(".neighbourhood .middle")
    assert middle.text_content() == "Belize"
    target = page.locator(".neighbourhood .stop").first
    name = target.locator("text").text_content()
    target.click()
    page.locator(".neighbourhood .middle", has_text=name).wait_for()
    assert shown(page.locator(".trail li")) == ["Belize", f"{name} (open its page)"]
    assert page.locator("h1").inner_text() == "Belize"  # the page stays where it is

    page.keyboard.press("ArrowDown")
    focus = page.locator(".neighbourhood .stop:focus")
    name = focus.locator("text").text_content()
    page.keyboard.press("Enter")
    page.locator(".neighbourhood .middle", has_text=name).wait_for()
    assert page.evaluate("document.activeElement.classList.contains('middle')")
    page.locator(".trail button").first.click()
    page.locator(".neighbourhood .middle", has_text="Belize").wait_for()
    page.set_viewport_size({"width": 900, "height": 800})  # room for both wings
    page.locator(".neighbourhood text[text-anchor=end]").first.wait_for()
    page.locator(".neighbourhood .stop").first.hover()
    assert page.locator("#tip").is_visible()


def test_questions_and_files_of_answers(opened, site):
    page = opened("#/ask")
    head, relation, tail = (page.get_by_label(label, exact=True) for label in ("Head", "Relation", "Tail"))
    head.press_sequentially("beliz")
    page.locator("[role=option]:visible").first.wait_for()
    page.keyboard.press("Enter")
    assert head.input_value() == "Belize"
    assert relation.evaluate("node => node === document.activeElement")
    page.keyboard.type("border")
    page.locator("[role=option]:visible").first.wait_for()
    page.keyboard.press("Enter")
    page.locator(".answers li").first.wait_for()
    assert page.url.endswith("#/ask?head=Belize&relation=borders")
    assert focused(page) == "Belize borders ?"
    expected = fetched(site, "/predict", head="Belize", relation="borders")
    assert shown(page.locator(".answers .who .name")) == [one["tail"]["shown"] for one in expected["answers"]]
    assert page.locator(".answers .mark").count() == 0

    page.get_by_text("also known answers").click()
    page.get_by_role("combobox", name="Answers").select_option("25")
    page.locator("button.strong").click()
    page.locator(".answers .mark").first.wait_for()
    expected = fetched(site, "/predict", head="Belize", relation="borders", known=True, k=25)["answers"]
    marks = {one["tail"]["shown"]: one["known"] for one in expected if one["known"]}
    assert len(shown(page.locator(".answers .mark"))) == len(marks) > 0
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    assert saved.value.suggested_filename == "atlas-Belize-borders.csv"
    rows = list(csv.DictReader(io.StringIO(saved.value.path().read_text(encoding="utf-8"))))
    assert [row["tail"] for row in rows] == [one["tail"]["name"] for one in expected]
    assert [float(row["probability"]) for row in rows] == [one["probability"] for one in expected]
    assert all(float(row["base_rate"]) == expected[0]["base_rate"] for row in rows)
    with page.expect_download() as saved:
        page.get_by_role("button", name="JSON").click()
    assert [row["tail"] for row in json.loads(saved.value.path().read_text(encoding="utf-8"))] == [
        row["tail"] for row in rows
    ]

    again = opened(page.url.partition("/#")[2].join(["#", ""]))  # the link, in another browser
    assert shown(again.locator(".answers .who .name")) == shown(page.locator(".answers .who .name"))
    assert again.get_by_label("Head", exact=True).input_value() == "Belize"
    go(again, "#/ask?relation=capital_of&tail=France")
    assert again.locator("h2").inner_text() == "? capital_of France"
    go(again, "#/ask?head=Belize&tail=Guatemala&known=1")
    assert again.locator(".answers li").count() >= 1
    assert tail.input_value() == ""


def test_a_whole_triple_is_judged_and_wrong_names_are_corrected(opened):
    page = opened("#/ask?head=Belize&relation=borders&tail=Guatemala", expect=["404"])
    page.locator(".why-title, .why .empty").first.wait_for()
    assert "rank as tail" in page.locator(".cards").inner_text()
    go(page, "#/ask?head=Beliez&relation=borders")
    page.locator(".suggested a", has_text="Belize").first.click()
    page.locator(".answers li").first.wait_for()
    assert page.url.endswith("#/ask?head=Belize&relation=borders")
    go(page, "#/entity?name=Beliez")
    assert page.locator("h1").inner_text() == "Not found"
    page.locator(".suggested a").first.click()
    page.locator("h1", has_text="Belize").wait_for()
    settle(page)
    go(page, "#/entity?name=Belize&run=none")
    assert "no run none" in page.locator("[role=alert]").inner_text()
    assert page.get_by_text("To the overview").get_attribute("href") == "#/"
    go(page, "#/nowhere")
    assert page.locator("h1").inner_text() == "Not found"


def test_a_relation(opened, site):
    page, about = opened("#/relation?name=borders"), fetched(site, "/relation", name="borders")
    assert page.locator(".about .kind").inner_text() == about["category"]
    links = [f"{one['head']['shown']} → {one['tail']['shown']}" for one in about["discovered"]]
    assert shown(page.locator(".answers .who"))[: len(links)] == links
    assert page.get_by_text(f"base rate, {about['discovered'][0]['base_rate']:.2f}:").count() == 1
    tables = page.locator("section", has=page.get_by_role("heading", name="Metrics"))
    first = about["metrics"][0]
    assert f"{first['value']:.3f}" in tables.locator("tbody tr").first.inner_text()
    low, high = first["interval"]
    assert f"{low:.3f} to {high:.3f}" in tables.locator("tbody tr").first.inner_text()
    bars = page.locator("figure rect.bar")
    assert bars.count() == sum(count > 0 for count in about["histogram"]["counts"])
    errors = page.locator("section", has=page.get_by_role("heading", name="Worst errors"))
    assert errors.locator("tbody tr").count() == len(about["worst_errors"])
    page.get_by_text("Review its links").click()
    page.locator(".verdicts").wait_for()
    assert page.url.endswith("#/review?relation=borders")
    settle(page)


def test_review_by_keyboard(opened, site):
    def summary():
        return fetched(site, "/review/summary")

    page = opened("#/review")
    links = fetched(site, "/review")["links"]
    triple = page.locator(".review-triple .name")
    assert shown(triple) == [links[0][part]["shown"] for part in ("head", "relation", "tail")]
    page.locator(".review-card .why-title, .review-card .empty").first.wait_for()
    for place, key in enumerate("ars"):
        page.keyboard.press(key)
        following = [links[place + 1][part]["shown"] for part in ("head", "relation", "tail")]
        page.wait_for_timeout(50)
        page.locator(".review-part", has_text=following[0]).first.wait_for()
        page.get_by_role("status").filter(has_text="Next").wait_for(state="attached")
        assert shown(triple) == following
    assert {key: summary()[key] for key in ("accepted", "rejected", "skipped")} == {
        "accepted": 1,
        "rejected": 1,
        "skipped": 1,
    }
    assert "50%" in page.locator(".precision").inner_text()
    assert "95%" in page.locator(".precision").inner_text()
    page.keyboard.press("u")
    page.locator("dl.tally .skipped dd", has_text="0").wait_for()
    assert shown(triple) == [links[2][part]["shown"] for part in ("head", "relation", "tail")]
    assert summary()["skipped"] == 0
    page.get_by_role("button", name="Accept").click()
    page.locator("dl.tally .accepted dd", has_text="2").wait_for()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export CSV").click()
    rows = list(csv.DictReader(io.StringIO(saved.value.path().read_text(encoding="utf-8"))))
    assert [row["head"] for row in rows] == [links[0]["head"]["name"], links[2]["head"]["name"]]
    page.reload()
    settle(page)
    assert shown(triple) == [links[3][part]["shown"] for part in ("head", "relation", "tail")]
    assert page.locator("dl.tally .accepted dd").inner_text() == "2"
    page.get_by_role("combobox", name="Only links of").press_sequentially("borders")
    page.locator("[role=option]:visible").first.wait_for()
    page.keyboard.press("Enter")
    page.locator(".review-part", has_text="borders").wait_for()
    settle(page)
    assert summary()["accepted"] == 2  # letters that are typed into a field are no verdicts


def test_labels_and_types_of_codex(opened, site, explored):
    if "codex" not in explored:
        pytest.skip("PAIRRE_DATA has no CoDEx-S")
    page = opened("#/?run=codex")
    assert page.locator("#run-choice select").input_value() == "codex"
    kinds = [sample["type"] for sample in fetched(site, "", "codex")["sample_entities"]]
    assert shown(page.locator(".sample h3")) == kinds
    page.locator(".chips a").first.click()
    page.locator(".group").first.wait_for()
    settle(page)
    assert page.locator("h1").inner_text().startswith("Q")
    assert not re.search(r"\bP\d+\b", page.locator(".groups").inner_text())
    assert page.locator(".about .kind").count() >= 1
    go(page, "#/relation?name=P106&run=codex")
    assert page.locator("h1").inner_text() == "occupation"
    assert page.locator(".about code").inner_text() == "P106"
    page.get_by_text("Ask about it").click()
    assert page.get_by_label("Relation", exact=True).input_value() == "occupation"
    page.get_by_label("Head", exact=True).fill("Q7604")
    page.get_by_label("Type").fill("profession")
    page.keyboard.press("Enter")
    page.locator(".answers li").first.wait_for()
    assert set(shown(page.locator(".answers .kind"))) == {"profession"}
    go(page, "#/review?run=codex")
    assert page.locator(".review-part .kind").count() >= 1
    page.locator("#run-choice select").select_option("atlas")
    page.locator(".hero h1", has_text="atlas").wait_for()
    settle(page)
