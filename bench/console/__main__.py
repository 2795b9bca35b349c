"""`python -m bench.console`: the console's pages of a long job, in a real browser."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from playwright.async_api import Browser

from bench.console import second_look
from bench.console.chromium import Seen, chromium, see
from bench.console.long_job import Size, filling
from bench.console.services import services

PAINT_MS = 1000.0
GREATEST_BYTES = 1_000_000
_CHARTS = """[...document.querySelectorAll('.chart:not(.spark)')]
    .filter((place) => place.chart?.data[0].length >= {points}).length >= {charts}"""
_TURN = """async () => {
  const taken = [];
  let [after, episodes] = ["", 0];
  do {
    const began = performance.now();
    const query = new URLSearchParams({ size: 50, after });
    const found = await (await fetch(`/api/jobs/long/episodes?${query}`)).json();
    taken.push(performance.now() - began);
    episodes += found.episodes.length;
    after = found.next;
  } while (after);
  return { taken, episodes };
}"""


def main() -> int:
    """Returns 0; a missed target is printed, and no error."""
    options = _options()
    result = asyncio.run(_measure(options))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    size = Size(options.steps, options.groups, options.attempts)
    # Its last step is committed while a page is open.
    done = size.steps - 1
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with filling(f"sqlite+aiosqlite:///{folder}/controller.db") as filler:
            await filler.job("long", size, done)
            await filler.job("other", Size(size.steps, 1, 1), done)
            async with services(Path(folder)) as url, chromium() as browser:
                for name, (where, stands) in _pages(done).items():
                    seen = [
                        await see(
                            browser,
                            f"{url}/#{where}",
                            stands,
                            options.width,
                            options.scheme,
                            picture,
                        )
                        for picture in _pictures(options, name)
                    ]
                    rows[name] = [vars(each) for each in seen]
                    print(_line(name, seen))
                rows["the list's pages"] = await _turned(browser, url)
                again = await second_look.measure(browser, url, filler, size)
                rows["a second look"] = again
    print(
        f"steps of the first look at a job: {again['first_bytes']} bytes; of a second one, when"
        f" the open page has been told of one more: {again['second_bytes']} bytes"
    )
    return {"cores": os.cpu_count(), "load": os.getloadavg(), "size": vars(size), "pages": rows}


def _pages(steps: int) -> dict[str, tuple[str, str]]:
    """Where each is, and what is true when it is whole."""
    return {
        "jobs": ("/", "document.querySelectorAll('table.jobs .uplot').length >= 2"),
        "a job": ("/jobs/long", _CHARTS.format(points=steps, charts=9)),
        "two runs": ("/compare?a=long&b=other", _CHARTS.format(points=steps, charts=8)),
        "episodes": (
            "/jobs/long/episodes",
            "document.querySelectorAll('.episodes tbody tr').length >= 50",
        ),
        "an episode": (
            f"/jobs/long/episode?id=long/s{steps}/g0/t0",
            "document.querySelectorAll('.turn').length >= 8",
        ),
    }


async def _turned(browser: Browser, url: str) -> dict[str, Any]:
    """Every page of the list of episodes, as a browser asks for them."""
    context = await browser.new_context()
    try:
        page = await context.new_page()
        await page.goto(url)
        found = await page.evaluate(_TURN)
    finally:
        await context.close()
    first, last = (statistics.median(part) for part in (found["taken"][:10], found["taken"][-10:]))
    print(
        f"{found['episodes']} episodes in pages of 50: {first:.0f} ms each of the first ten,"
        f" {last:.0f} ms of the last ten"
    )
    return {"episodes": found["episodes"], "first_ms": first, "last_ms": last}


def _line(name: str, seen: list[Seen]) -> str:
    paint, stands, longest = (
        statistics.median(getattr(each, field) for each in seen)
        for field in ("paint_ms", "stands_ms", "longest_task_ms")
    )
    greatest = max(seen, key=lambda each: each.greatest_bytes)
    met = paint <= PAINT_MS and greatest.greatest_bytes <= GREATEST_BYTES
    return (
        f"{name}: first paint {paint:.0f} ms, stands after {stands:.0f} ms (the first look"
        f" {seen[0].stands_ms:.0f}), longest task {longest:.0f} ms; {greatest.requests} requests,"
        f" the greatest {greatest.greatest_bytes} bytes, {greatest.greatest};"
        f" targets {PAINT_MS:.0f} ms and {GREATEST_BYTES} bytes {'met' if met else 'MISSED'}"
    )


def _pictures(options: argparse.Namespace, name: str) -> list[str]:
    """A file for the last look, where one is wanted; the others go without."""
    where = options.pictures
    file = f"{name.replace(' ', '-')}-{options.width}-{options.scheme}.png"
    last = str(where / file) if where else ""
    return [""] * (options.repeats - 1) + [last]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--groups", type=int, default=5, help="a step")
    parser.add_argument("--attempts", type=int, default=4, help="a group")
    parser.add_argument("--repeats", type=int, default=5, help="looks at each page")
    parser.add_argument("--width", type=int, default=1280, help="of the window, in pixels")
    parser.add_argument("--scheme", choices=("light", "dark"), default="light", help="colours")
    parser.add_argument("--pictures", type=Path, help="a folder for a picture of each page")
    parser.add_argument("--output", type=Path, default=Path("build/bench/console.json"))
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
