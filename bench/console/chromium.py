"""Pages of the console, each in a browser that has loaded nothing before."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from playwright.async_api import Browser, Request, async_playwright

_WATCH = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) window.longest = Math.max(window.longest, each.duration);
}).observe({ type: "longtask", buffered: true });
"""
_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"


Scheme = Literal["light", "dark"]


@dataclass(frozen=True)
class Seen:
    """How one page came."""

    paint_ms: float
    """From the navigation to its first words, as the browser tells it."""
    stands_ms: float
    """From the navigation until what the page is for is there."""
    longest_task_ms: float
    """For so long it answered to nobody; 0 where no task took 50 ms."""
    requests: int
    greatest_bytes: int
    """Of one answer, before it was compressed."""
    greatest: str


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """The machine's Chromium.

    Raises:
        FileNotFoundError: there is none.
    """
    path = shutil.which("chromium")
    if path is None:
        raise FileNotFoundError("there is no chromium in PATH")
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield launched
        finally:
            await launched.close()


async def see(
    browser: Browser,
    url: str,
    stands: str,
    width: int = 1280,
    scheme: Scheme = "light",
    picture: str = "",
) -> Seen:
    """Opens an address.

    Args:
        stands: an expression of JavaScript that is true when the page is whole.
        width: of the window, in pixels.
        scheme: the colours that the system prefers.
        picture: a file for a picture of the page; none without.
    """
    # Playwright's own questions need what the console's pages are forbidden.
    context = await browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    finished: list[Request] = []
    try:
        page = await context.new_page()
        await page.add_init_script(_WATCH)
        page.on("requestfinished", lambda request: finished.append(request))
        await page.goto(url)
        stood = await page.wait_for_function(
            f"() => ({stands}) && performance.now()", timeout=120_000
        )
        paint, longest = await page.evaluate(_PAINT), await page.evaluate("() => window.longest")
        sizes = {each.url: await _size(each) for each in finished}
        if picture:
            await page.screenshot(path=picture, full_page=True)
        greatest = max(sizes, key=sizes.__getitem__)
        where = "/" + greatest.split("/", 3)[3]
        return Seen(paint, await stood.json_value(), longest, len(sizes), sizes[greatest], where)
    finally:
        await context.close()


async def _size(request: Request) -> int:
    answer = await request.response()
    return len(await answer.body()) if answer is not None else 0
