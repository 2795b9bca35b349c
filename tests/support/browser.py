"""Chromium, driven as a person would: every word on its console, and every answer, is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import Page, Response, TimeoutError, async_playwright
from support.programs import program

POINTS = """() => [...document.querySelectorAll('.chart:not(.spark)')]
    .filter((place) => place.chart).map((place) => place.chart.data[0].length)"""
"""How many points each chart of the page has."""


FOCUSED = """() => {
  const here = document.activeElement;
  const look = getComputedStyle(here);
  const name = here.getAttribute('aria-label') ?? here.labels?.[0]?.textContent ?? here.textContent;
  const box = here.getBoundingClientRect();
  const outline = look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) > 0;
  const inside = box.right > 0 && box.left < innerWidth && box.bottom > 0 && box.top < innerHeight;
  return { name: name.trim(), seen: here === document.body || (outline && inside) };
}"""
"""What has the focus, and whether one sees that."""

WIDER = "() => document.documentElement.scrollWidth - innerWidth"
"""By how many pixels a page is wider than its window."""


@dataclass
class Browser:
    """One page, and what went wrong in it."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    bytes_of: dict[str, int] = field(default_factory=dict)

    async def open(self, where: str) -> None:
        """Goes to a page of the console, such as `/jobs/a`, and waits for its heading."""
        await self.page.goto("about:blank")
        await self.page.goto(f"{self.url}/#{where}")
        await self.page.locator("main h1").first.wait_for()

    async def tab_to(self, name: str, presses: int = 60) -> None:
        """Presses Tab until what has this name has the focus; one sees each that has it before."""
        passed = []
        for _ in range(presses):
            await self.page.keyboard.press("Tab")
            found = await self.ask(FOCUSED)
            assert found["seen"], f"nobody sees that {found['name']!r} has the focus"
            passed.append(found["name"])
            if found["name"] == name:
                return
        raise AssertionError(f"no key reaches {name!r}, but {passed}")

    async def ask(self, script: str, argument: Any = None) -> Any:
        """What a script of the page gives."""
        return await self.page.evaluate(script, argument)

    async def until(self, script: str, argument: Any = None) -> None:
        """Waits until a script of the page gives something true."""
        try:
            await self.page.wait_for_function(script, arg=argument, timeout=60_000)
        except TimeoutError:
            said = await self.page.locator("main").inner_text()
            raise AssertionError(f"not so: {script}; {self.complaints}; {said[:2000]}") from None


@asynccontextmanager
async def browser(url: str, **options: Any) -> AsyncIterator[Browser]:
    """Chromium with a page of its own; skips the test where there is none."""
    path = program("chromium", "chromium")
    async with async_playwright() as playwright:
        # No sandbox, as tests may run as root in a container; the pages are the console's own.
        launched = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            context = await launched.new_context(**options)
            page = await context.new_page()
            page.set_default_timeout(60_000)
            found = Browser(page, url)
            page.on(
                "console",
                lambda said: (
                    found.complaints.append(said.text)
                    if said.type in ("error", "warning")
                    else None
                ),
            )
            page.on("pageerror", lambda error: found.complaints.append(str(error)))

            async def weigh(answer: Response) -> None:
                if "text/event-stream" not in answer.headers.get("content-type", ""):
                    size = int(answer.headers.get("content-length", "0"))
                    found.bytes_of[answer.url] = max(size, found.bytes_of.get(answer.url, 0))

            page.on("response", weigh)
            yield found
        finally:
            await launched.close()
