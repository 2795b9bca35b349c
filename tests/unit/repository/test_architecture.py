"""Each stop on an episode's way names the files that it is in (links are tested elsewhere)."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/architecture.md"


def stops() -> dict[str, str]:
    """The paragraphs of the episode's section, by their headings."""
    text = PAGE.read_text().split("## One episode", 1)[1].split("\n## ", 1)[0]
    return {
        match[1]: match[2]
        for match in re.finditer(
            r"^\*\*(.+?)\.\*\*(.*?)(?=^\*\*|\Z)", text, re.MULTILINE | re.DOTALL
        )
    }


def test_every_stop_names_a_module() -> None:
    found = stops()
    assert {"The group", "Committed"} <= found.keys()
    silent = {
        stop
        for stop, text in found.items()
        if not any(
            (PAGE.parent / path).is_file() for path in re.findall(r"\]\(([^)]+\.py)\)", text)
        )
    }
    assert silent == set()
