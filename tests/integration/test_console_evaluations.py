"""Stored evaluations in a real Chromium, over the controller's own service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
from podium.core.statistics import paired_interval
from podium.jobs.v1 import evaluation_service_pb2 as pb
from podium.sdk import AsyncClient
from support.browser import Browser, browser
from support.console import console
from support.evaluation_contract import scenario
from support.fake_podium import FakePodium, fake_podium
from support.programs import program

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
SCENARIOS = 130


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakePodium]:
    program("chromium", "chromium")
    async with fake_podium(tmp_path) as found:
        yield found


async def keep(fake: FakePodium, agent: str, successes: int, **fields: Any) -> str:
    """Its id; of each scenario two attempts, of which the first scenarios' succeed."""
    made = pb.StoredEvaluation(agent=agent, project="default", attempts=2, **fields)
    made.environment.name, made.environment.split = "email_search", "test"
    made.environment.config.update({"say": HOSTILE})
    results = [
        scenario(f"{HOSTILE}{'w' * 150} {n}", n < successes, n < successes)
        for n in range(SCENARIOS)
    ]
    async with AsyncClient(fake.addresses) as client:
        return (await client.evaluations.store(made, results)).id


async def rows(chromium: Browser, table: str, count: int) -> None:
    await chromium.until(
        "([table, count]) => document.querySelectorAll(`${table} tbody tr`).length === count",
        [f".{table}", count],
    )


@pytest.mark.parametrize(("width", "height", "scheme"), [(1280, 900, "light"), (390, 844, "dark")])
async def test_evaluations_are_listed_by_pages_opened_and_two_of_them_compared(
    fake: FakePodium, width: int, height: int, scheme: Literal["light", "dark"]
) -> None:
    first = await keep(fake, "base", 30, name=HOSTILE)
    for _ in range(24):
        await keep(fake, "openai:other", 5)
    second = await keep(fake, HOSTILE, 90)
    viewport = {"width": width, "height": height}
    async with (
        console(fake) as here,
        browser(here.url, viewport=viewport, color_scheme=scheme) as chromium,
    ):
        page = chromium.page
        await chromium.open("/evaluations")
        await rows(chromium, "evaluations", 25)
        compare = page.get_by_role("button", name="Compare the two")
        assert await compare.is_disabled()
        await page.get_by_role("button", name="Next").click()
        await rows(chromium, "evaluations", 1)
        # What is ticked stays so on another page.
        await page.locator(f"input[data-id='{first}']").check()
        await page.get_by_role("button", name="Previous").click()
        await rows(chromium, "evaluations", 25)
        await page.locator(f"input[data-id='{second}']").check()
        await compare.click()
        await page.get_by_text("+46.2 points", exact=True).wait_for()
        said = await page.locator(".cards").inner_text()
        assert "better in 60, worse in 0" in said
        low, high = paired_interval([1.0] * 60 + [0.0] * 70, 2 / 2) or (0, 0)
        assert f"{100 * low:+.1f} points to {100 * high:+.1f} points" in said
        await rows(chromium, "scenarios", 50)
        await page.get_by_role("link", name="The other way round").click()
        await page.get_by_text("−46.2 points", exact=True).wait_for()
        await page.get_by_role("link", name="base").click()
        await page.get_by_role("heading", name="base").wait_for()
        await rows(chromium, "scenarios", 100)
        await page.get_by_role("button", name="Next").click()
        await rows(chromium, "scenarios", 30)
        for where in (
            "/evaluations",
            f"/evaluations/{second}",
            f"/evaluations/compare?a={first}&b={second}",
        ):
            await chromium.open(where)
            await page.locator("main td").first.wait_for()
            # Nothing is wider than the screen.
            wide = "() => document.documentElement.scrollWidth - innerWidth"
            assert await chromium.ask(wide) <= 0, where
        assert await page.title() != "owned"
        assert max(chromium.bytes_of.values()) < 1_000_000
        assert chromium.complaints == []


async def test_those_of_other_scenarios_are_told_so_and_compared_when_asked(
    fake: FakePodium,
) -> None:
    made = pb.StoredEvaluation(agent="base", project="default")
    made.environment.name = "email_search"
    async with AsyncClient(fake.addresses) as client:
        one = await client.evaluations.store(made, [scenario("a", True), scenario("b", True)])
        two = await client.evaluations.store(made, [scenario("b", False), scenario("c", True)])
    async with console(fake) as here, browser(here.url) as chromium:
        page = chromium.page
        await chromium.open(f"/evaluations/compare?a={one.id}&b={two.id}")
        await page.get_by_text("not of the same scenarios").wait_for()
        await page.get_by_role("button", name="Compare the scenarios that both have").click()
        await page.get_by_text("no interval of one scenario").first.wait_for()
        await chromium.open("/evaluations")
        await page.get_by_label("Environment").fill("none such")
        await page.get_by_role("button", name="Show").click()
        await page.get_by_text("Nothing is stored here").wait_for()
        complaints = [each for each in chromium.complaints if "409" not in each]
        assert complaints == []
