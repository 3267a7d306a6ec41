"""Take the pictures of the explorer that the documentation shows.

pairre train atlas --out runs/atlas && pairre serve runs/atlas --reviews $(mktemp -d)    # verdicts are given
python scripts/explorer_figures.py http://127.0.0.1:8000/        # writes docs/figures/explorer-*.png
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import sync_playwright

FIGURES = Path(__file__).parents[1] / "docs" / "figures"


class Figure(NamedTuple):
    """A picture: the address of the page, what is clicked and pressed before, and the screen."""

    address: str
    click: str = ""
    keys: str = ""
    width: int = 1280
    height: int = 860
    theme: str = "light"
    scale: float = 1.0


PICTURES = {
    "overview": Figure("#/", height=980),
    "entity": Figure("#/entity?name=Belize", height=980),
    "ask": Figure("#/ask?head=Palestinian%20Territories&relation=borders&known=1", ".answers li:nth-child(4) button"),
    "relation": Figure("#/relation?name=borders", height=1180, theme="dark"),
    "review": Figure("#/review", keys="aara"),
    "narrow": Figure("#/entity?name=Belize", width=360, height=760, theme="dark", scale=1.5),
}


def take(browser: Any, site: str, figure: Figure, path: Path) -> None:
    """Write one picture, once the page has everything."""
    page = browser.new_page(
        viewport={"width": figure.width, "height": figure.height},
        color_scheme=figure.theme,
        device_scale_factor=figure.scale,
        reduced_motion="reduce",
    )
    page.goto(site + figure.address)
    page.locator("#main h1").first.wait_for()
    page.locator(".skeleton, .preparing").first.wait_for(state="detached")
    if figure.click:
        page.locator(figure.click).first.click()
        page.locator(".skeleton").first.wait_for(state="detached")
        page.mouse.move(0, 0)
        page.evaluate("document.activeElement.blur()")
    for letter in figure.keys:
        page.keyboard.press(letter)
        page.wait_for_timeout(1000)  # the reasons of the next link are there
    page.wait_for_timeout(300)
    page.screenshot(path=path)
    page.close()


def main() -> None:
    """Take every picture, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", help="the address of the server, with the run of the bundled graph as its first")
    parser.add_argument("names", nargs="*", choices=[[], *PICTURES], help="of the pictures; all without any")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as driver:
        sandbox = [] if os.geteuid() else ["--no-sandbox"]
        browser = driver.chromium.launch(executable_path=chromium, args=sandbox)
        for name in arguments.names or PICTURES:
            take(browser, arguments.site, PICTURES[name], FIGURES / f"explorer-{name}.png")
            print(f"docs/figures/explorer-{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
