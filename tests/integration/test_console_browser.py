"""The console's pages in a real Chromium, over doubles of the services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from podium.cli.html_report import ReportData, render
from podium.jobs.v1 import job_service_pb2 as jobs
from support import fake_podium as doubles
from support.browser import POINTS, Browser, browser
from support.console import PagedJobs, console, trajectory
from support.fake_job_service import watched_job
from support.fake_podium import FakePodium, fake_podium
from support.job_records import episodes, evaluations, job, steps
from support.programs import program

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"

SLOW = """
let [real, frame] = [null, 0];
window.drawn = [];
const count = () => { frame += 1; requestAnimationFrame(count); };
requestAnimationFrame(count);
Object.defineProperty(window, "uPlot", { get: () => real, set: (given) => {
  real = new Proxy(given, { construct(target, options) {
    window.drawn.push(frame);
    for (const end = performance.now() + 20; performance.now() < end;);
    return Reflect.construct(target, options);
  } });
} });
"""
"""A chart takes longer than a frame has, and tells in which it was drawn."""

LONG = f"{HOSTILE}{'y' * 5000}its end"


@pytest.fixture
async def fake(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakePodium]:
    program("chromium", "chromium")
    monkeypatch.setattr(doubles, "FakeJobs", PagedJobs)
    async with fake_podium() as found:
        running = found.jobs.known["live"] = job("live", steps=600, done=500)
        running.wait_message = HOSTILE
        found.jobs.known["done"] = job("done")
        found.jobs.steps, found.jobs.evaluations = steps(500), evaluations()
        found.jobs.hold_watch = True
        found.jobs.trajectories = [
            trajectory(
                f"live/s{s}/g{g}/t{t}",
                HOSTILE,
                LONG,
                explanation=HOSTILE,
            )
            for s in range(1, 11)
            for g in range(5)
            for t in range(4)
        ]
        found.registry.publish("live", 3, {"adapter/a": b"x"})
        yield found


async def test_500_steps_and_many_episodes_are_shown_and_nothing_that_a_model_says_runs(
    fake: FakePodium,
) -> None:
    async with console(fake) as here, browser(here.url) as chromium:
        page = chromium.page
        await chromium.open("/")
        await chromium.until("() => document.querySelectorAll('.clients li').length === 1")
        await page.get_by_role("link", name="live", exact=True).click()
        await chromium.until(f"() => ({POINTS})()[0] >= 500")
        await page.get_by_role("link", name="Episodes").click()
        await chromium.until("() => document.querySelectorAll('.episodes tbody tr').length === 50")
        await page.get_by_role("button", name="Next").click()
        await chromium.until("() => document.body.textContent.includes('live/s3/g2/t2')")
        await page.locator(".episodes tbody a").first.click()
        await page.get_by_role("button", name="Show the other").first.click()
        await chromium.until(
            "(end) => document.querySelector('main').textContent.includes(end)", "yyyy"
        )
        for where in ("/compare?a=live&b=done", "/models/live", "/jobs/none", "/nowhere"):
            await page.goto(f"{here.url}/#{where}")
            await page.locator("main h1, main .problem").first.wait_for()
        assert await page.title() != "owned"
        assert max(chromium.bytes_of.values()) < 1_000_000
        complaints = [each for each in chromium.complaints if "404" not in each]
        assert complaints == []


async def test_a_curve_grows_as_steps_are_committed_and_ends_with_the_job(
    fake: FakePodium,
) -> None:
    known = fake.jobs.known["live"]
    known.ClearField("wait_message")
    fake.jobs.steps = steps(2)
    fake.jobs.updates, fake.jobs.listed = watched_job(known, 6), 3
    fake.jobs.updates[-1].job.state = jobs.JOB_STATE_SUCCEEDED
    async with console(fake) as here, browser(here.url) as chromium:
        await chromium.open("/jobs/live")
        # Version 0 was evaluated, then six steps; the last evaluation is of version 18.
        await chromium.until(f"() => ({POINTS})()[1] === 6")
        await chromium.page.locator("h1 .state.succeeded").wait_for()
        assert chromium.complaints == []


async def test_a_page_of_curves_is_drawn_a_frame_at_a_time(fake: FakePodium) -> None:
    async with console(fake) as here, browser(here.url) as chromium:
        await chromium.page.add_init_script(SLOW)
        await chromium.open("/jobs/live")
        await chromium.until("() => window.drawn.length === 11")
        # Between any two of them the page answers.
        assert len(set(await chromium.ask("() => window.drawn"))) == 11
        assert chromium.complaints == []


async def test_usage_is_shown_and_an_alias_is_given_once_it_is_confirmed(fake: FakePodium) -> None:
    used = jobs.Usage(sampled_tokens=1234, trainer_gpu_seconds=5400)
    fake.jobs.used = [jobs.UsageRow(job_id="live", project=HOSTILE, usage=used)]
    fake.jobs.budgets = [jobs.ProjectBudget(project=HOSTILE, max_gpu_hours=1, gpu_hours=1.5)]
    async with console(fake) as here, browser(here.url) as chromium:
        page = chromium.page
        await chromium.open("/")
        await page.get_by_role("link", name="Usage").click()
        row = page.locator(".usage tbody tr")
        await row.first.wait_for()
        assert {"live", "1,234", "1.50"} <= set(await row.locator("td").all_text_contents())
        await page.get_by_text("used up: its jobs pause").wait_for()
        await page.goto(f"{here.url}/#/models/live")
        for answer in ("Back", "Point it there"):
            await page.get_by_role("button", name="give version 3 an alias").click()
            await page.get_by_label("Alias", exact=True).fill("prod")
            await page.get_by_role("button", name="Next").click()
            await page.get_by_text("It points nowhere now").wait_for()
            assert list(fake.registry.versions[0].aliases) == ["latest"]
            await page.get_by_role("button", name=answer).click()
        await page.locator(".tags li", has_text="prod").wait_for()
        assert list(fake.registry.versions[0].aliases) == ["latest", "prod"]
        assert await page.title() != "owned"
        assert chromium.complaints == []


async def test_a_page_asks_for_the_token_and_goes_on_with_it(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("the-token\n")
    program("chromium", "chromium")
    async with (
        fake_podium(auth_tokens_file=tokens) as fake,
        console(fake) as here,
        browser(here.url, viewport={"width": 390, "height": 844}) as chromium,
    ):
        fake.jobs.known["a"] = job("a")
        await chromium.open("/jobs/a")
        await _sign_in(chromium, "wrong")
        await chromium.page.get_by_text("do not take this token").wait_for()
        await _sign_in(chromium, "the-token")
        await chromium.page.get_by_role("heading", name="a succeeded").wait_for()
        assert await chromium.ask("() => document.cookie") == ""
        # Nothing is wider than a phone.
        assert await chromium.ask("() => document.documentElement.scrollWidth <= innerWidth")
        tokens.write_text("another\n")
        await chromium.page.get_by_role("link", name="Checkpoints").first.click()
        await chromium.page.get_by_role("heading", name="Sign in").wait_for()


async def _sign_in(chromium: Browser, token: str) -> None:
    await chromium.page.get_by_label("Token").fill(token)
    await chromium.page.get_by_role("button", name="Sign in").click()


async def test_a_report_is_drawn_from_its_one_file(tmp_path: Path) -> None:
    data = ReportData(
        job=job("<b>"),
        steps=steps(),
        evaluations=evaluations(),
        before=episodes(0, 30, 12, 6),
        after=episodes(18, 99, 98, 96),
    )
    file = tmp_path / "report.html"
    file.write_text(render(data))
    async with browser(file.as_uri()) as chromium:
        await chromium.page.goto(chromium.url)
        charts = chromium.page.locator("[data-chart]")
        assert (
            await charts.count() == await chromium.page.locator("[data-chart] canvas").count() >= 8
        )
        assert await chromium.page.locator(".u-legend", has_text="publish").count() == 1
        assert chromium.complaints == []
