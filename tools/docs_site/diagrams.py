"""Draws the documents' diagrams: each Mermaid block becomes an SVG that the site shows.

A forge draws Mermaid by itself; the site has no script for it, and works without a network. The
pictures stand in docs/images, named by their text, so a test can tell that one is missing or that
nobody shows it any more.

    npm install mermaid@12 --prefix build/mermaid
    python tools/docs_site/diagrams.py build/mermaid/node_modules/mermaid/dist/mermaid.min.js
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"

_BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# As wide as a page of the site, on whose dark pages it stands on white.
_LOOK = """{startOnLoad: false, theme: "neutral", fontFamily: "sans-serif", htmlLabels: false,
    flowchart: {htmlLabels: false, useMaxWidth: true}}"""


def diagrams(text: str) -> list[str]:
    """The Mermaid blocks of a page."""
    return _BLOCK.findall(text)


def picture(diagram: str) -> str:
    """The name of a diagram's picture."""
    return f"diagram-{hashlib.sha256(diagram.encode()).hexdigest()[:12]}.svg"


def with_pictures(text: str) -> str:
    """A page whose diagrams are their pictures, each with the diagram's text for who cannot see."""
    return _BLOCK.sub(
        lambda block: f"![{_words(block[1])}](/docs/images/{picture(block[1])})", text
    )


def _words(diagram: str) -> str:
    arrows = re.findall(r"\|(.+?)\|", diagram)
    return f"Diagram: {', '.join(arrows)}" if arrows else "Diagram"


def of_documents() -> Iterator[str]:
    """Every diagram of the documents."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        yield from diagrams(page.read_text())


def draw(script: Path) -> None:
    """Writes the pictures that are missing, by Mermaid's own script in Chromium."""
    from playwright.sync_api import sync_playwright

    missing = [each for each in of_documents() if not (IMAGES / picture(each)).exists()]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.set_content("<body></body>")
        page.add_script_tag(path=str(script))
        page.evaluate(f"() => mermaid.initialize({_LOOK})")
        for each in missing:
            svg = page.evaluate("async (text) => (await mermaid.render('d', text)).svg", each)
            shown = svg.replace("<style>", "<style>#d{background:white}", 1)
            (IMAGES / picture(each)).write_text(f"{shown}\n")
            print(f"drew {picture(each)}")
        browser.close()


def _replace(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = with_pictures(source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx's entry."""
    app.connect("source-read", _replace)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
