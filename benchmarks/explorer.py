"""How quickly does the explorer show its pages and get its answers, as the browser itself measures it?

python benchmarks/explorer.py runs/atlas --keep      # a run of the bundled graph
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from machine import describe, options, write

PAGES = {
    "overview": "#/",
    "entity": "#/entity?name=Belize",
    "entity with many facts": "#/entity?name=France",
    "ask for tails": "#/ask?head=Belize&relation=borders",
    "ask for heads": "#/ask?relation=speaks&tail=French",
    "ask for relations": "#/ask?head=Belize&tail=Guatemala",
    "judge a triple": "#/ask?head=Belize&relation=borders&tail=Honduras",
    "relation": "#/relation?name=borders",
    "review": "#/review",
}
TYPED = "guatem"
MEASURED = """() => ({
  paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
  answers: performance.getEntriesByType("resource").filter((entry) => entry.name.includes("/api/v1/"))
    .map((entry) => [entry.name, entry.duration]),
  kilobytes: performance.getEntriesByType("resource").reduce((sum, entry) => sum + entry.transferSize, 0) / 1024,
})"""


@contextmanager
def served(run: str) -> Iterator[str]:
    """Serve a run; yield its address once everything that is computed in the background is there."""
    with tempfile.TemporaryDirectory() as reviews:
        command = [sys.executable, "-m", "pairre", "serve", f"run={run}", "--port", "0", "--reviews", reviews]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
            address = next(word for line in server.stdout or () for word in line.split() if word.startswith("http://"))
            while b'"preparing":[]' not in urllib.request.urlopen(f"{address}api/v1/runs/run").read():
                time.sleep(0.5)
            yield address
            server.send_signal(signal.SIGTERM)


def kind_of(address: str) -> str:
    """Return which answer an address asks for."""
    path = urllib.parse.urlsplit(address).path.partition("/api/v1/")[2]
    return path.replace("runs/run/", "").replace("runs/run", "landing")


def visit(browser: Any, site: str, page_address: str) -> dict[str, Any]:
    """Open a page with an empty cache, type into its search field, and return what the browser measured."""
    page = browser.new_context().new_page()
    page.goto(site + page_address)
    page.locator("#main h1").first.wait_for()
    page.locator(".skeleton, .preparing").first.wait_for(state="detached")
    page.locator("#finder input").press_sequentially(TYPED, delay=100)
    page.locator("#finder [role=option]").first.wait_for()
    found: dict[str, Any] = page.evaluate(MEASURED)
    page.context.close()
    return found


def reasons(browser: Any, site: str) -> list[float]:
    """Return the milliseconds of the reasons of one answer after the other, on a page that has been drawn before."""
    page = browser.new_context().new_page()
    page.goto(site + PAGES["entity with many facts"])
    page.locator(".skeleton, .preparing").first.wait_for(state="detached")
    page.wait_for_timeout(2000)
    for button in page.locator(".why-button").all()[:10]:
        button.evaluate("node => node.click()")
        page.wait_for_timeout(500)
    found = page.evaluate(MEASURED)["answers"]
    page.context.close()
    return [duration for url, duration in found if kind_of(url) == "why"]


def spread(values: list[float]) -> dict[str, float]:
    """Return the median and the largest of some milliseconds, and their number."""
    return {"median": round(statistics.median(values), 1), "largest": round(max(values), 1), "count": len(values)}


def main() -> None:
    """Visit every page some times and print what it took."""
    from playwright.sync_api import sync_playwright

    parser = options(__doc__ or "")
    parser.add_argument("run", help="a run folder of the bundled graph")
    arguments = parser.parse_args()
    machine, rounds = describe(), arguments.rounds or (1 if arguments.quick else 5)
    paints, answers = defaultdict(list), defaultdict(list)
    kilobytes: dict[str, float] = {}
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with served(arguments.run) as site, sync_playwright() as driver:
        sandbox = [] if os.geteuid() else ["--no-sandbox"]
        browser = driver.chromium.launch(executable_path=chromium, args=sandbox)
        of_drawn_page = reasons(browser, site)
        for _ in range(rounds):
            for name, address in PAGES.items():
                found = visit(browser, site, address)
                paints[name].append(found["paint"])
                kilobytes[name] = round(found["kilobytes"], 1)
                for url, duration in found["answers"]:
                    answers[kind_of(url)].append(duration)
        machine["versions"]["chromium"] = browser.version
        browser.close()
    result = {
        "machine": machine,
        "what": "milliseconds as the browser's performance API has them, on loopback, with an empty cache",
        "rounds": rounds,
        "first_contentful_paint_ms": {name: spread(values) for name, values in paints.items()},
        "answers_ms": {name: spread(values) for name, values in sorted(answers.items())},
        "reasons_on_a_drawn_page_ms": spread(of_drawn_page),
        "kilobytes": kilobytes,
    }
    for title in ("first_contentful_paint_ms", "answers_ms"):
        print(f"\n{title:28}{'median':>9}{'largest':>9}")
        for name, row in result[title].items():
            print(f"{name:28}{row['median']:9.0f}{row['largest']:9.0f}")
    print(f"\nreasons on a drawn page: {result['reasons_on_a_drawn_page_ms']}")
    write("explorer", result, arguments)


if __name__ == "__main__":
    main()
