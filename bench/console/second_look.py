"""What an open page is told of a step, and what the same page asks for when it is opened again."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import Browser, Page, Request

from bench.console.long_job import Filler, Size

_LONGEST_CURVE = """(points) => [...document.querySelectorAll('.chart:not(.spark)')]
    .filter((place) => place.chart?.data[0].length >= points).length >= 9"""


async def measure(browser: Browser, url: str, filler: Filler, size: Size) -> dict[str, Any]:
    """Opens the job `long`, commits its last step, goes to the list of jobs, and comes back."""
    # Playwright's own questions need what the console's pages are forbidden.
    context = await browser.new_context(bypass_csp=True)
    asked: list[Request] = []
    try:
        page = await context.new_page()
        page.on("requestfinished", lambda request: asked.append(request))
        await page.goto(f"{url}/#/jobs/long")
        await _drawn(page, size.steps - 1)
        await filler.step("long", size, size.steps)
        # The step's number is one that an evaluation of version 0 stands before, in one chart.
        await page.locator(".cards", has_text=f"{size.steps} / {size.steps}").wait_for()
        await page.locator("a[href='#/']").first.click()
        await page.locator("table.jobs a", has_text="long").click()
        await _drawn(page, size.steps)
        looks = [each for each in asked if _is_of_steps(each.url)]
        first, second = looks[0], looks[-1]
        return {
            "asked": [urlsplit(each.url).query for each in looks],
            "first_points": size.steps - 1,
            "first_bytes": await _bytes(first),
            "second_points": size.steps,
            "second_after": parse_qs(urlsplit(second.url).query).get("after", [""])[0],
            "second_bytes": await _bytes(second),
        }
    finally:
        await context.close()


def _is_of_steps(url: str) -> bool:
    """Not the list's small curves, which name their metric."""
    parts = urlsplit(url)
    return parts.path == "/api/jobs/long/steps" and "names" not in parts.query


async def _drawn(page: Page, points: int) -> None:
    await page.wait_for_function(_LONGEST_CURVE, arg=points, timeout=120_000)


async def _bytes(request: Request) -> int:
    answer = await request.response()
    return len(await answer.body()) if answer is not None else 0
