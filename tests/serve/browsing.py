"""How tests use the pages of the explorer: addresses, following them, and what the API answers."""

import json
import urllib.parse
import urllib.request

PAGES = {
    "overview": "#/",
    "entity": "#/entity?name=Belize",
    "ask": "#/ask?head=Belize&relation=borders&known=1",
    "relation": "#/relation?name=borders",
    "review": "#/review",
}
WAITING = ".skeleton, .preparing"


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
