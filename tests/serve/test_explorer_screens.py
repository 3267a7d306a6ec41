"""The explorer in a real browser: hostile names, screens and readers, and a server that says no."""

import re
import urllib.parse

import pytest

from .browsing import PAGES, fetched, focused, go, settle, shown
from .conftest import HOSTILE, HOSTILE_RELATIONS

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # but for tabs and lines of the page


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


def test_a_narrow_screen_does_not_scroll_sideways(opened, explored):
    page = opened(viewport={"width": 320, "height": 640}, color_scheme="dark")
    for address in [*PAGES.values(), *(["#/entity?name=Q30&run=codex"] if "codex" in explored else [])]:
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
    page.wait_for_function("document.querySelector('input:focus')?.value === ''")  # it is asked for again
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
