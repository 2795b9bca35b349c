"""The console by keys alone, and on a phone, in a real Chromium over doubles of the services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from podium.jobs.v1 import evaluation_service_pb2 as stored
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.sdk import AsyncClient
from support import fake_podium as doubles
from support.browser import FOCUSED, WIDER, browser
from support.console import LiveJobs, console, trajectory
from support.evaluation_contract import scenario
from support.fake_podium import FakePodium, fake_podium
from support.job_records import evaluations, job, steps
from support.programs import program

LONG = "x" * 63
"""As long as an id may be, and nowhere to break it."""
UNFOLD = "() => document.querySelectorAll('main details').forEach((each) => { each.open = true; })"
WORD = "supercalifragilistic" * 40


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> LiveJobs:
    """Filled by `fake`."""
    program("chromium", "chromium")
    found = LiveJobs()
    monkeypatch.setattr(doubles, "FakeJobs", lambda: found)
    return found


@pytest.fixture
async def fake(live: LiveJobs, tmp_path: Path) -> AsyncIterator[FakePodium]:
    async with fake_podium(tmp_path) as found:
        live.known["live"], live.known[LONG] = job("live", steps=600, done=20), job(LONG)
        live.steps, live.evaluations = steps(20), evaluations()
        live.trajectories = [
            trajectory(f"live/s{s}/g{g}/t0", WORD, f"{WORD}{'y' * 5000}its end", explanation=WORD)
            for s in range(1, 41)
            for g in range(4)
        ]
        found.registry.publish("live", 3, {"adapter/a": b"x"})
        yield found


async def test_a_job_is_steered_and_its_episodes_are_read_by_keys_alone(
    fake: FakePodium, live: LiveJobs
) -> None:
    known = live.known["live"]
    async with console(fake) as here, browser(here.url) as chromium:
        page, press = chromium.page, chromium.page.keyboard.press

        async def focused() -> str:
            return str((await chromium.ask(FOCUSED))["name"])

        await chromium.open("/")
        await page.get_by_role("link", name="live", exact=True).wait_for()
        await chromium.tab_to("Skip to the page", 1)
        await press("Enter")
        # The page is still there, and what is in the bar was passed over.
        await page.get_by_role("heading", name="Jobs").wait_for()
        await chromium.tab_to("live", 3)
        await press("Enter")
        await page.get_by_role("heading", name="live running").wait_for()
        await chromium.tab_to("Pause", 2)
        await press("Enter")
        await page.locator("h1 .state.pausing").wait_for()
        assert known.state == jobs.JOB_STATE_PAUSING
        # What one pressed is gone; what stands for it can be pressed at once.
        assert await focused() == "Resume"
        await press("Enter")
        await page.locator("h1 .state.queued").wait_for()
        assert known.state == jobs.JOB_STATE_QUEUED
        await chromium.tab_to("Cancel", 2)
        # A step that is committed takes the focus from nobody.
        known.state, known.completed_steps = jobs.JOB_STATE_RUNNING, 21
        await live.tell(jobs.EVENT_TYPE_STEP, "step 21", step=steps(21)[-1])
        await page.get_by_text("21 / 600").wait_for()
        assert await focused() == "Cancel"
        await press("Enter")
        await page.locator("dialog").wait_for()
        await press("Escape")
        await page.locator("dialog").wait_for(state="detached")
        assert (known.state, await focused()) == (jobs.JOB_STATE_RUNNING, "Cancel")
        await press("Enter")
        await chromium.tab_to("Cancel the job", 3)
        await press("Enter")
        await page.locator("h1 .state.cancelling").wait_for()
        assert known.state == jobs.JOB_STATE_CANCELLING

        assert await focused() == "Episodes"
        await press("Enter")
        await page.locator(".episodes tbody a").first.wait_for()
        await chromium.tab_to("Next", 60)
        for number in (2, 3):
            await press("Enter")
            await page.get_by_text(f"page {number}", exact=True).wait_for()
            assert await focused() == "Next"
        await press("Enter")
        # There is none after the last.
        await page.get_by_text("page 4", exact=True).wait_for()
        assert await focused() == "Previous"
        await page.locator(".episodes tbody a").first.focus()
        await press("Enter")
        await page.locator(".turn.assistant").first.wait_for()
        await chromium.tab_to("live", 1)
        await page.get_by_role("button", name="Show the other").first.focus()
        await press("Enter")
        await chromium.until("() => document.querySelector('main').textContent.includes('its end')")
        assert chromium.complaints == []


async def test_a_job_is_submitted_and_a_policy_talked_with_by_keys_alone(
    fake: FakePodium, live: LiveJobs
) -> None:
    async with console(fake) as here, browser(here.url) as chromium:
        page, keys = chromium.page, chromium.page.keyboard
        await chromium.open("/")
        await chromium.tab_to("Submit")
        await keys.press("Enter")
        await page.get_by_role("heading", name="Submit a job").wait_for()
        await chromium.tab_to("Id", 1)
        await keys.type("by-keys")
        await chromium.tab_to("Job file", 2)
        await keys.press("Control+A")
        await keys.type("base_model: m\ntraining: {stepz: 3}\n")
        await chromium.tab_to("Check only", 1)
        await keys.press("Enter")
        await page.get_by_text("not a valid job").wait_for()
        await chromium.tab_to("Submit", 1)
        for _ in range(3):
            await keys.press("Shift+Tab")
        # The way to the line that is wrong.
        assert "line 2: training.stepz" in (await chromium.ask(FOCUSED))["name"]
        await keys.press("Enter")
        await keys.type("training: {steps: 3}")
        await chromium.tab_to("Submit", 5)
        await keys.press("Enter")
        await page.get_by_role("heading", name="by-keys queued").wait_for()
        assert live.known["by-keys"].spec.training.steps == 3

        await page.goto(f"{here.url}/#/chat")
        await page.locator("#words:focus").wait_for()
        await keys.type("one two")
        await keys.press("Control+Enter")
        await page.locator(".chat .assistant pre", has_text="two one").wait_for()
        await page.locator("#words:focus").wait_for()
        assert [each for each in chromium.complaints if "400" not in each] == []


async def test_no_page_is_wider_than_a_phone(fake: FakePodium, live: LiveJobs) -> None:
    failed = live.known["failed"] = job("failed", steps=9, done=3)
    failed.state = jobs.JOB_STATE_FAILED
    failed.failure_reason, failed.failure_message = "A_REASON", WORD
    live.known["live"].wait_reason, live.known["live"].wait_message = "A_REASON", WORD
    live.used = [jobs.UsageRow(job_id=LONG, project=LONG, usage=jobs.Usage(sampled_tokens=10**12))]
    live.budgets = [jobs.ProjectBudget(project=LONG, max_gpu_hours=1, gpu_hours=1.5)]
    await live.tell(jobs.EVENT_TYPE_WARNING, f"{WORD} (NO_VARIANCE)")
    for version in range(2):
        made = fake.registry.publish(LONG, version, {"adapter/a": b"x"})
        made.aliases.append("a" * 64)
        made.manifest.parents.add(model=LONG, version=version)
    kept = stored.StoredEvaluation(agent=WORD[:500], name=LONG, project="default")
    kept.environment.name = LONG
    async with AsyncClient(fake.addresses) as client:
        found = [
            await client.evaluations.store(kept, [scenario(WORD[:200], bool(yes))])
            for yes in (0, 1)
        ]
    one, two = (each.id for each in found)
    phone, wider = {"width": 390, "height": 844}, {}
    async with console(fake) as here, browser(here.url, viewport=phone) as chromium:
        for where, shown in (
            ("/", "main tbody tr"),
            ("/jobs/live", ".chart canvas"),
            ("/jobs/failed", ".chart canvas"),
            (f"/jobs/{LONG}", ".chart canvas"),
            ("/jobs/live/episodes", ".episodes tbody tr"),
            ("/jobs/live/episode?id=live/s1/g0/t0", ".turn pre"),
            (f"/compare?a=live&b={LONG}", ".chart canvas"),
            ("/evaluations", ".evaluations tbody tr"),
            (f"/evaluations/{one}", ".scenarios tbody tr"),
            (f"/evaluations/compare?a={one}&b={two}", ".scenarios tbody tr"),
            ("/models", "main tbody tr"),
            (f"/models/{LONG}", ".tags li"),
            ("/chat", "#words"),
            ("/usage", ".usage tbody tr"),
            ("/submit", "main button"),
        ):
            await chromium.open(where)
            await chromium.page.locator(shown).first.wait_for()
            await chromium.ask(UNFOLD)
            wider[where] = await chromium.ask(WIDER)
            current = chromium.page.locator("nav a[aria-current=page]")
            left = await current.bounding_box()
            assert left is not None
            assert 0 <= left["x"] <= left["x"] + left["width"] <= phone["width"], where
        await chromium.page.goto(f"{here.url}/#/jobs/none")
        await chromium.page.locator("main .problem").wait_for()
        wider["none"] = await chromium.ask(WIDER)
        assert [(where, pixels) for where, pixels in wider.items() if pixels > 0] == []
        assert [each for each in chromium.complaints if "404" not in each] == []
