"""The console in a real Chromium over a real stack: from a job file to a chat with what it made."""

from __future__ import annotations

import pytest
from podium.core.contract import to_yaml
from podium.local.launcher import Launcher
from support.browser import POINTS, browser
from support.console import console
from support.jobs import client_of, small_spec
from support.programs import program

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.full,
    pytest.mark.timeout(600),
]


async def test_s18_a_job_is_submitted_watched_read_compared_and_talked_to(stack: Launcher) -> None:
    program("chromium", "chromium")
    async with client_of(stack) as client:
        engine = await client.policies.engine()
        spec = small_spec(6, model=engine.base_model)
        other = await client.jobs.create(small_spec(2, model=engine.base_model), job_id="by-sdk")
        await client.jobs.wait(other.id, within=240)
        async with console(client.addresses) as here, browser(here.url) as chromium:
            page = chromium.page
            await chromium.open("/submit")
            await page.get_by_label("Job file").fill("training: {stepz: 3}\n")
            await page.get_by_role("button", name="Check only").click()
            await page.get_by_text("line 1: training.stepz").wait_for()
            await page.get_by_label("Job file").fill(to_yaml(spec))
            await page.get_by_label("Id", exact=True).fill("by-hand")
            await page.get_by_role("button", name="Submit", exact=True).click()
            await page.get_by_role("heading", name="by-hand").wait_for()
            # The curve moves while the job runs: nobody loads the page again.
            await chromium.until(f"() => ({POINTS})()[0] >= 1")
            begun = (await chromium.ask(POINTS))[0]
            await chromium.until(f"(begun) => ({POINTS})()[0] > begun", begun)
            await page.locator("h1 .state.succeeded").wait_for(timeout=240_000)
            assert (await client.jobs.get("by-hand")).completed_steps == 6
            # The phases of a step are six points too.
            assert (await chromium.ask(POINTS))[1] == 6

            await page.get_by_role("link", name="Episodes").click()
            await page.locator(".episodes tbody a").first.click()
            await page.locator(".turn.assistant").first.wait_for()

            await chromium.open("/compare?a=by-hand&b=by-sdk")
            await chromium.until(f"() => ({POINTS})().length >= 2")
            assert await page.locator(".u-legend", has_text="by-sdk").count() >= 2

            await chromium.open("/models/by-hand")
            await page.get_by_role("button", name="lineage of version 6").click()
            await page.locator(".lineage").get_by_text("by-hand@5").wait_for()
            # Of merged weights the pool holds version 6; the one before has to be loaded.
            await page.goto(f"{here.url}/#/chat?policy=by-hand@5")
            await page.get_by_label("Longest answer, tokens").fill("8")
            await page.get_by_label("Message", exact=True).fill("Say something.")
            await page.get_by_role("button", name="Send").click()
            await page.get_by_role("button", name="Load it and send").click()
            await chromium.until(
                "() => document.querySelector('.chat .assistant pre')?.textContent.length > 0"
            )
            assert {(p.job, p.version) async for p in client.policies.list()} == {("by-hand", 5)}
            # The one refusal that the page was made to handle.
            rest = [c for c in chromium.complaints if "400" not in c and "409" not in c]
            assert rest == []
            assert max(chromium.bytes_of.values()) < 1_000_000
