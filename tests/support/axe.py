"""axe-core, which finds what keeps people from using a page, in the page itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page

_FILE = Path(__file__).parents[2] / "build/axe-core/axe.min.js"
_GRAVE = ("serious", "critical")
# Transitions end first: in the midst of one a colour is neither the old one nor the new. Nothing is
# waited for: a page that is not drawn ends none by itself.
_LOOK = """async () => {
    for (const each of document.querySelectorAll("details")) each.open = true;
    for (const each of document.getAnimations()) {
        try { each.finish(); } catch { each.cancel(); }
    }
    const found = await axe.run(document, { resultTypes: ["violations"], preload: false });
    return found.violations;
}"""


def axe_source() -> str:
    """The program; skips the test where it is not there."""
    if not _FILE.is_file():
        pytest.skip("axe-core is not here: `sh tools/axe.sh` fetches it with npm")
    return _FILE.read_text()


async def grave_violations(page: Page, source: str) -> list[str]:
    """The page's serious and critical violations: rule, element, and what would mend it.

    What is closed is opened.
    """
    # In the page's world, whatever its content security policy allows a page's own scripts.
    if not await page.evaluate("() => 'axe' in window"):
        await page.evaluate(source)
    return [
        f"{violation['id']} ({violation['impact']}): {node['html'][:200]}: {node['failureSummary']}"
        for violation in await page.evaluate(_LOOK)
        if violation["impact"] in _GRAVE
        for node in violation["nodes"]
    ]
