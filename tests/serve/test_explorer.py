"""The explorer in a real browser, against a real server: every page and action, hostile names, screens, access."""

import contextlib
import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

import pairre
from serve.conftest import HOSTILE, HOSTILE_RELATIONS, SMALL

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGES = {
    "overview": "#/",
    "entity": "#/entity?name=Belize",
    "ask": "#/ask?head=Belize&relation=borders&known=1",
    "relation": "#/relation?name=borders",
    "review": "#/review",
}
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # but for tabs and lines of the page
WAITING = ".skeleton, .preparing"


@pytest.fixture(scope="module")
def runs(atlas_run, hostile_run, tmp_path_factory):
    """Run folders by name: the bundled graph first; CoDEx-S, with labels and types, where PAIRRE_DATA has it."""
    runs = {"atlas": atlas_run}
    codex = Path(os.environ.get("PAIRRE_DATA", "")) / "codex-s"
    if codex.is_dir():
        graph = pairre.load_graph(codex, labels=codex / "relation-labels.tsv.gz", types=codex / "types.tsv.gz")
        run = pairre.train(graph, SMALL, progress=False, device="cpu")
        runs["codex"] = run.save(tmp_path_factory.mktemp("explored") / "codex")
    return runs | {"hostile": hostile_run}


@pytest.fixture(scope="module")
def site(browser, runs, tmp_path_factory):
    """The address of a server of these runs, started by the command; the browser comes first, to skip without one."""
    reviews = tmp_path_factory.mktemp("verdicts")
    arguments = [f"{name}={folder}" for name, folder in runs.items()]
    command = [sys.executable, "-m", "pairre", "serve", *arguments, "--port", "0", "--reviews", str(reviews)]
    server = subprocess.Popen(
        [*command, "--device", "cpu", "--rate", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    said = []
    for line in server.stdout:
        said.append(line)
        if found := re.search(r"http://\S+", line):
            break
    else:
        pytest.fail("".join(said))
    for name in runs:
        while fetched(found.group(), "", name)["preparing"]:
            time.sleep(0.2)
    yield found.group()
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0
    server.stdout.close()


@pytest.fixture
def opened(browser, site):
    """A function that opens a page of the explorer; no console error and no request to elsewhere may come of it."""
    faults, expected = [], []
    with contextlib.ExitStack() as stack:

        def open_page(address="#/", expect=(), **options):
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(20_000)
            expected.extend(expect)
            page.on("console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("request", lambda r: None if r.url.startswith((site, "blob:")) else faults.append(r.url))
            page.goto(site + address)
            settle(page)
            return page

        yield open_page
    assert [fault for fault in faults if not any(word in fault for word in expected)] == []


def settle(page):
    """Wait until a page shows what it has to show."""
    page.locator("#main h1, #main h2").first.wait_for()
    page.locator(WAITING).first.wait_for(state="detached")


def go(page, address):
    """Follow an address within the explorer."""
    page.evaluate("address => { location.hash = address; }", address)
    page.wait_for_timeout(30)
    settle(page)


def fetched(site, path, run="atlas", **parameters):
    """What the API answers."""
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"{site}api/v1/runs/{run}{path}?{query}") as reply:
        return json.load(reply)


def shown(locator):
    return [" ".join(text.split()) for text in locator.all_inner_texts()]


def focused(page):
    return page.evaluate("document.activeElement.textContent.trim() || document.activeElement.value")


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


def test_labels_and_types_of_codex(opened, site, runs):
    if "codex" not in runs:
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
    assert set(shown(page.locator(".answers .kind"))) <= {"profession", *kinds} or page.locator(".answers").count()
    go(page, "#/review?run=codex")
    assert page.locator(".review-part .kind").count() >= 1
    page.locator("#run-choice select").select_option("atlas")
    page.locator(".hero h1", has_text="atlas").wait_for()
    settle(page)


# --- names from outside ---


def test_hostile_names_are_text(opened):
    page = opened("#/?run=hostile", viewport={"width": 320, "height": 700})
    relation = urllib.parse.quote(HOSTILE_RELATIONS[1], safe="")
    for name in HOSTILE:
        where = urllib.parse.quote(name, safe="")
        go(page, f"#/entity?run=hostile&name={where}")
        assert page.locator(".group").count() >= 1
        title = page.locator("h1").inner_text()
        if name.isprintable() and len(name) < 100:
            assert title == name
        if len(name) > 1000:
            assert len(title) <= 160
            page.locator("summary").click()
            assert len(page.locator(".whole-name p").inner_text()) == len(name)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        assert not HIDDEN.search(page.locator("#main").inner_text())
        go(page, f"#/ask?run=hostile&head={where}&relation={relation}&known=1")
        assert page.locator(".answers li").count() >= 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert page.locator("#main script, #main b b, #main i i").count() == 0


def test_hostile_relations_are_text(opened):
    page = opened("#/?run=hostile")
    assert page.locator(".chips a").count() >= 1
    for relation in HOSTILE_RELATIONS:
        go(page, f"#/relation?run=hostile&name={urllib.parse.quote(relation, safe='')}")
        assert page.locator(".triples li").count() >= 1
        assert page.locator("#main i:not(.share i)").count() == 0


# --- screens and readers ---


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_violation_that_axe_knows(opened, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    rules = {"runOnly": ["color-contrast"]} if theme == "dark" else {}  # all else is the same in both
    page = opened(color_scheme=theme)
    for name, address in {**PAGES, "nothing": "#/ask", "hostile": "#/review?run=hostile"}.items():
        go(page, address)
        if page.locator(".why-button:visible").count():
            page.locator(".why-button:visible").first.click()
            page.locator(".why-title, .why .empty").first.wait_for()
        found = axe.Axe().run(page, options=rules).response["violations"]
        assert [(name, one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] != "minor"] == []


def test_a_narrow_screen_does_not_scroll_sideways(opened, runs):
    page = opened(viewport={"width": 320, "height": 640}, color_scheme="dark")
    for address in [*PAGES.values(), *(["#/entity?name=Q30&run=codex"] if "codex" in runs else [])]:
        go(page, address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, address
        assert page.locator("nav").is_visible()
        assert page.locator("#finder input").is_visible()


def test_the_theme_is_chosen_and_kept(opened):
    def background():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    page = opened(color_scheme="light")
    light = background()
    page.get_by_role("button", name="Use the dark theme").click()
    dark = background()
    assert dark != light
    page.reload()
    settle(page)
    assert background() == dark
    page.get_by_role("button", name="Use the light theme").click()
    assert background() == light


def test_the_keyboard_reaches_everything(opened):
    page = opened(PAGES["entity"], reduced_motion="reduce")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    landmarks = {"banner": 1, "navigation": 1, "search": 1, "main": 1, "contentinfo": 1}
    assert {role: page.get_by_role(role).count() for role in landmarks} == landmarks
    assert page.get_by_role("status").get_attribute("aria-live") == "polite"


# --- a server that says no ---


def test_a_token_is_asked_for_and_kept(opened, site):
    page = opened(PAGES["ask"], expect=["401"])

    def guard(route):
        if route.request.headers.get("authorization") == "Bearer open sesame":
            return route.continue_()
        return route.fulfill(status=401, json={"error": {"code": "no_token", "message": "no token", "suggestions": []}})

    page.route("**/api/**", guard)
    page.reload()
    page.get_by_label("Token").fill("wrong")
    page.keyboard.press("Enter")
    page.get_by_label("Token").fill("open sesame")
    page.keyboard.press("Enter")
    page.locator(".answers li").first.wait_for()
    page.reload()
    page.locator(".answers li").first.wait_for()


def test_what_is_still_computed_is_said(opened, site):
    page, about, answers = opened("#/ask"), fetched(site, ""), []

    def early(route):
        answers.append({"best_relations": [], "worst_relations": [], "preparing": [{"part": "metrics", "done": 0.4}]})
        return route.fulfill(json=about | answers[-1]) if len(answers) < 3 else route.continue_()

    page.route("**/runs/atlas", early)
    page.evaluate("location.hash = '#/'")
    page.locator(".preparing", has_text="40%").first.wait_for()
    settle(page)
    page.locator("figure circle").first.wait_for()
    assert len(page.locator(".columns").first.locator("tbody tr").all()) >= 2
    assert len(answers) >= 3


def test_reviews_that_are_off_are_said(opened):
    page = opened(expect=["403"])
    error = {"code": "reviews_off", "message": "no verdicts are stored for this run", "suggestions": []}
    page.route("**/review?*", lambda route: route.fulfill(status=403, json={"error": error}))
    go(page, "#/review")
    page.get_by_role("alert").get_by_text("no verdicts are stored").wait_for()


def test_a_verdict_that_is_not_stored_is_said(opened, site):
    page = opened("#/review", expect=["500"])
    before = fetched(site, "/review/summary")
    error = {"code": "failed", "message": "the disk is full", "suggestions": []}
    page.route("**/review", lambda route: route.fulfill(status=500, json={"error": error}))
    triple = shown(page.locator(".review-triple .name"))
    page.keyboard.press("a")
    page.get_by_role("alert").get_by_text("the disk is full").wait_for()
    assert shown(page.locator(".review-triple .name")) == triple
    page.unroute("**/review")
    page.get_by_role("button", name="Skip").press("Enter")
    page.locator("dl.tally .skipped dd", has_text=str(before["skipped"] + 1)).wait_for()
    assert page.get_by_role("alert").count() == 0
    assert focused(page).startswith("Skip")  # and the next verdict is one key away
    page.keyboard.press("u")
    page.locator("dl.tally .skipped dd", has_text=str(before["skipped"])).wait_for()
    assert fetched(site, "/review/summary") == before


def test_a_busy_server_is_asked_again_and_a_lost_one_is_said(opened):
    page = opened(expect=["503", "Failed to load"])
    refused = []

    def busy(route):
        refused.append(route.request.url)
        if len(refused) > 2:
            return route.continue_()
        error = {"code": "busy", "message": "busy", "suggestions": []}
        return route.fulfill(status=503, json={"error": error}, headers={"Retry-After": "1"})

    page.route("**/entity?*", busy)
    go(page, "#/entity?name=Chile")
    assert page.locator(".group").count() >= 1
    assert len(refused) == 3
    page.route("**/entity?*", lambda route: route.abort())
    go(page, "#/entity?name=Peru")
    assert "cannot be reached" in page.locator("[role=alert]").inner_text()
    page.unroute("**/entity?*")
    page.get_by_role("button", name="Try again").click()
    page.locator("h1", has_text="Peru").wait_for()
    settle(page)
