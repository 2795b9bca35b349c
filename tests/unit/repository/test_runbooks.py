"""What a runbook sends its reader to is there: panels, rows and dashboards by their titles."""

from __future__ import annotations

import re
from pathlib import Path

import dashboards

RUNBOOKS = Path(__file__).parents[3] / "docs" / "runbooks"
# Commands, and what stands in backticks, quote for a shell.
NO_PROSE = re.compile(r"^ {4}.*$|`[^`]*`", re.MULTILINE)


def quoted(text: str) -> set[str]:
    return {" ".join(each.split()) for each in re.findall(r'"([^"]+)"', NO_PROSE.sub("", text))}


def shown() -> set[str]:
    found = {panel.title for name in dashboards.BOARDS for panel in dashboards.panels_of(name)}
    for board in dashboards.BOARDS.values():
        found |= {board.title} | {title for title, _ in board.rows}
    return found


def test_titles_are_found_over_lines_and_not_in_commands() -> None:
    text = 'See "Engine\nqueue", "Step"; `jq "x"`.\n\n    psql --command "SELECT 1"\n'
    assert quoted(text) == {"Engine queue", "Step"}


def test_every_panel_that_a_runbook_names_is_on_a_dashboard() -> None:
    titles = shown()
    pages = {page.name: quoted(page.read_text()) for page in sorted(RUNBOOKS.glob("*.md"))}
    assert len(pages) > 10
    assert {name: said - titles for name, said in pages.items() if said - titles} == {}
