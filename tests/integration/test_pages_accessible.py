"""The console's pages and the report before axe-core, in a real Chromium: nothing grave."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
from podium.cli.html_report import ReportData, render
from podium.jobs.v1 import evaluation_service_pb2 as stored
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.sdk import AsyncClient
from support import fake_podium as doubles
from support.axe import axe_source, grave_violations
from support.browser import Browser, browser
from support.console import PagedJobs, console, trajectory
from support.evaluation_contract import scenario
from support.fake_podium import FakePodium, fake_podium
from support.full import full
from support.job_records import episodes, evaluations, job, steps
from support.programs import program

Scheme = Literal["light", "dark"]

screens = pytest.mark.parametrize(
    ("width", "height", "scheme"),
    [
        (1280, 900, "light"),
        (390, 844, "dark"),
        full(1280, 900, "dark"),
        full(390, 844, "light"),
    ],
)


@pytest.fixture(scope="module")
def axe() -> str:
    program("chromium", "chromium")
    return axe_source()


@pytest.fixture
async def fake(
    axe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FakePodium]:
    monkeypatch.setattr(doubles, "FakeJobs", PagedJobs)
    async with fake_podium(tmp_path) as found:
        running = found.jobs.known["live"] = job("live", steps=600, done=30)
        running.wait_message = "waits for a place"
        failed = found.jobs.known["failed"] = job("failed", steps=9, done=3)
        failed.state = jobs.JOB_STATE_FAILED
        failed.failure_reason = "the judge was away"
        found.jobs.known["done"] = job("done")
        found.jobs.steps, found.jobs.evaluations = steps(30), evaluations()
        found.jobs.hold_watch = True
        found.jobs.used = [jobs.UsageRow(job_id="live", project="p", usage=jobs.Usage())]
        found.jobs.budgets = [jobs.ProjectBudget(project="p", max_gpu_hours=1, gpu_hours=1.5)]
        found.jobs.trajectories = [
            trajectory(f"live/s1/g{g}/t{t}", reward=t / 4, explanation="because")
            for g in range(5)
            for t in range(4)
        ]
        found.registry.publish("live", 3, {"adapter/a": b"x"})
        yield found


async def store(fake: FakePodium) -> tuple[str, str]:
    made = stored.StoredEvaluation(agent="base", project="default")
    made.environment.name = "email_search"
    results = [[scenario("a", True), scenario("b", better)] for better in (False, True)]
    async with AsyncClient(fake.addresses) as client:
        one, two = [await client.evaluations.store(made, each) for each in results]
    return one.id, two.id


async def check(chromium: Browser, axe: str, where: str, shown: str) -> list[str]:
    """Opens a page, waits until all of it is `shown`, and says what is grave."""
    await chromium.open(where)
    await chromium.page.locator(shown).first.wait_for()
    return [f"{where}: {each}" for each in await grave_violations(chromium.page, axe)]


@screens
async def test_no_page_of_the_console_has_a_serious_or_critical_violation(
    fake: FakePodium, axe: str, width: int, height: int, scheme: Scheme
) -> None:
    one, two = await store(fake)
    async with (
        console(fake) as here,
        browser(
            here.url, viewport={"width": width, "height": height}, color_scheme=scheme
        ) as chromium,
    ):
        found = []
        for where, shown in (
            ("/", "main tbody tr"),
            ("/jobs/live", ".chart canvas"),
            ("/jobs/failed", ".chart canvas"),
            ("/jobs/live/episodes", ".episodes tbody tr"),
            ("/jobs/live/episode?id=live/s1/g0/t1", ".message, pre"),
            ("/compare?a=live&b=done", ".chart canvas"),
            ("/evaluations", ".evaluations tbody tr"),
            (f"/evaluations/{one}", ".scenarios tbody tr"),
            (f"/evaluations/compare?a={one}&b={two}", ".scenarios tbody tr"),
            ("/models/live", ".tags li"),
            ("/chat", "#words"),
            ("/usage", ".usage tbody tr"),
            ("/submit", "main button"),
        ):
            found += await check(chromium, axe, where, shown)
        assert found == []


@screens
async def test_signing_in_has_no_serious_or_critical_violation(
    axe: str, tmp_path: Path, width: int, height: int, scheme: Scheme
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("the-token\n")
    async with (
        fake_podium(auth_tokens_file=tokens) as fake,
        console(fake) as here,
        browser(
            here.url, viewport={"width": width, "height": height}, color_scheme=scheme
        ) as chromium,
    ):
        found = await check(chromium, axe, "/", "main input")
        await chromium.page.get_by_label("Token").fill("wrong")
        await chromium.page.get_by_role("button", name="Sign in").click()
        await chromium.page.get_by_text("do not take this token").wait_for()
        assert found + await grave_violations(chromium.page, axe) == []


@screens
async def test_a_report_has_no_serious_or_critical_violation(
    axe: str, tmp_path: Path, width: int, height: int, scheme: Scheme
) -> None:
    file = tmp_path / "report.html"
    file.write_text(
        render(
            ReportData(
                job=job(),
                steps=steps(),
                evaluations=evaluations(),
                before=episodes(0, 30, 12, 6),
                after=episodes(18, 99, 98, 96),
                events=[jobs.Event(type=jobs.EVENT_TYPE_WARNING, message="a judge was away")],
            )
        )
    )
    viewport = {"width": width, "height": height}
    async with browser(file.as_uri(), viewport=viewport, color_scheme=scheme) as chromium:
        await chromium.page.goto(chromium.url)
        await chromium.page.locator("[data-chart] canvas").first.wait_for()
        assert await grave_violations(chromium.page, axe) == []


async def test_a_page_that_nobody_could_read_is_told(axe: str, tmp_path: Path) -> None:
    """That what is looked at is seen at all."""
    file = tmp_path / "bad.html"
    file.write_text("<html><p style='color: #eee; background: #fff'>pale</p><img src='x'></html>")
    async with browser(file.as_uri()) as chromium:
        await chromium.page.goto(chromium.url)
        found = await grave_violations(chromium.page, axe)
    rules = {each.partition(" ")[0] for each in found}
    assert {"color-contrast", "image-alt", "html-has-lang"} <= rules
