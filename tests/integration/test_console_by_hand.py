"""What one does with the console by mouse, in a real Chromium over doubles of the services."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import expect
from podium.cli.html_report.curves import CURVES
from podium.core.findings import NO_VARIANCE
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.types.v1 import trajectory_pb2
from podium_controller.domain.coach import news
from support import fake_podium as doubles
from support.browser import POINTS, browser
from support.coached import attempt, run, spec
from support.console import LiveJobs, console
from support.fake_podium import FakePodium, fake_podium
from support.job_records import evaluations, job, steps
from support.programs import program


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> LiveJobs:
    """Filled by `fake`."""
    program("chromium", "chromium")
    found = LiveJobs()
    monkeypatch.setattr(doubles, "FakeJobs", lambda: found)
    return found


@pytest.fixture
async def fake(live: LiveJobs) -> AsyncIterator[FakePodium]:
    async with fake_podium() as found:
        live.known["live"], live.known["done"] = job("live", steps=600, done=2), job("done")
        live.known["done"].latest_metrics.update(reward_mean=0.9134, success_mean=0.95)
        live.known["live"].latest_metrics.update(reward_mean=0.25)
        live.steps_of = {"live": steps(2), "done": steps(18)}
        live.evaluations = evaluations()
        yield found


async def test_a_job_file_is_checked_mended_and_submitted(fake: FakePodium, live: LiveJobs) -> None:
    async with console(fake) as here, browser(here.url) as chromium:
        page = chromium.page
        await chromium.open("/submit")
        text = page.get_by_label("Job file")
        await text.fill("base_model: m\ntraining: {stepz: 3}\nrollout: {group_size: many}\n")
        await page.get_by_role("button", name="Submit", exact=True).click()
        await page.get_by_text("not a valid job (3 problems)").wait_for()
        # Each leads to its line.
        await page.get_by_role("button", name="line 2: training.stepz").click()
        chosen = "() => document.getSelection().toString()"
        assert await chromium.ask(chosen) == "training: {stepz: 3}"
        await text.fill("base_model: m\nenvironment: {name: email_search}\ntraining: {steps: 3}\n")
        await page.get_by_role("button", name="Check only").click()
        await page.get_by_text("nothing was created").wait_for()
        assert list(live.known) == ["live", "done"]
        # An id that the server cannot take is not sent.
        await page.get_by_label("Id", exact=True).fill("Not An Id")
        await page.get_by_role("button", name="Submit", exact=True).click()
        assert await chromium.ask("() => document.querySelector('#id:invalid') !== null")
        await page.get_by_label("Id", exact=True).fill("done")
        await page.get_by_role("button", name="Submit", exact=True).click()
        await page.get_by_text("job done exists").wait_for()
        await page.get_by_label("Id", exact=True).fill("by-hand")
        await page.get_by_role("button", name="Submit", exact=True).click()
        await page.get_by_role("heading", name="by-hand queued").wait_for()
        assert live.known["by-hand"].spec.training.steps == 3
        rest = [each for each in chromium.complaints if "400" not in each and "409" not in each]
        assert rest == []


async def test_a_curve_gains_points_and_a_jobs_numbers_move_while_one_looks(
    fake: FakePodium, live: LiveJobs
) -> None:
    async with console(fake) as here, browser(here.url) as chromium:
        await chromium.open("/jobs/live")
        await chromium.until(f"() => ({POINTS})()[1] === 2")
        for step in steps(5)[2:]:
            live.known["live"].completed_steps = step.number
            live.known["live"].latest_metrics["reward_mean"] = step.number / 10
            await live.tell(jobs.EVENT_TYPE_STEP, f"step {step.number}", step=step)
            await chromium.until(f"(count) => ({POINTS})()[1] === count", step.number)
        cards = chromium.page.locator(".cards")
        await cards.get_by_text("5 / 600").wait_for()
        await cards.get_by_text("0.5", exact=True).wait_for()
        assert chromium.complaints == []


async def test_what_the_coach_finds_stands_above_the_curves_until_it_is_over(
    fake: FakePodium, live: LiveJobs
) -> None:
    flat = run(lambda draw, step: attempt(0.5), steps=8)
    (warning,) = (each.message for each in news((), flat, spec()))
    assert NO_VARIANCE in warning
    # Long ago, so that it is on no page of the newest events.
    await live.tell(jobs.EVENT_TYPE_WARNING, warning)
    for at in range(150):
        await live.tell(jobs.EVENT_TYPE_STATE, f"phase {at}")
    async with console(fake) as here, browser(here.url) as chromium:
        notes = chromium.page.locator("main header .note")
        await chromium.open("/jobs/live")
        await notes.get_by_text(warning).wait_for()
        await live.tell(jobs.EVENT_TYPE_WARNING, "step 9: a judge was away")
        await live.tell(jobs.EVENT_TYPE_WARNING, "step 9: the entropy fell (ENTROPY_COLLAPSE)")
        await notes.get_by_text("the entropy fell").wait_for()
        assert await notes.get_by_text("a judge was away").count() == 0
        await live.tell(jobs.EVENT_TYPE_RECOVERY, f"step 10: it is over ({NO_VARIANCE})")
        await notes.get_by_text(warning).wait_for(state="detached")
        assert await notes.get_by_text("the entropy fell").count() == 1
        assert chromium.complaints == []


async def test_a_job_is_paused_resumed_and_cancelled_once_that_is_confirmed(
    fake: FakePodium, live: LiveJobs
) -> None:
    known = live.known["live"]
    async with console(fake) as here, browser(here.url) as chromium:
        page = chromium.page
        await chromium.open("/jobs/live")
        for button, asked, shown in (
            ("Pause", jobs.JOB_STATE_PAUSING, "pausing"),
            ("Resume", jobs.JOB_STATE_QUEUED, "queued"),
        ):
            await page.get_by_role("button", name=button).click()
            await page.locator(f"h1 .state.{shown}").wait_for()
            assert known.state == asked
        cancel = page.get_by_role("button", name="Cancel", exact=True)
        await cancel.click()
        await page.get_by_role("button", name="Back").click()
        assert known.state == jobs.JOB_STATE_QUEUED
        await cancel.click()
        # It has ended meanwhile, and nobody was told.
        known.state = jobs.JOB_STATE_SUCCEEDED
        await page.get_by_role("button", name="Cancel the job").click()
        await page.locator(".toast", has_text="job live has ended").wait_for()
        known.state = jobs.JOB_STATE_RUNNING
        await cancel.click()
        await page.get_by_role("button", name="Cancel the job").click()
        await page.locator("h1 .state.cancelling").wait_for()
        assert known.state == jobs.JOB_STATE_CANCELLING
        assert await cancel.count() == 0
        assert [each for each in chromium.complaints if "409" not in each] == []


async def test_two_runs_are_told_apart_in_numbers_keys_and_curves(
    fake: FakePodium, live: LiveJobs
) -> None:
    live.known["done"].spec.training.learning_rate = 2e-4
    async with console(fake) as here, browser(here.url) as chromium:
        page = chromium.page
        await chromium.open("/compare?a=live&b=done")

        async def cells(row: str) -> list[str]:
            found = page.locator("main tr", has=page.locator("th", has_text=row)).first
            return await found.locator("td").all_text_contents()

        await page.get_by_role("cell", name="0.913").wait_for()
        assert await cells("state") == ["running", "succeeded"]
        assert await cells("steps") == ["2 / 600", "18 / 18"]
        assert await cells("reward of the last step") == ["0.25", "0.913"]
        assert await cells("held-out success, sampled") == ["96.0 %", "96.0 %"]
        await page.get_by_text("Specifications differ in 2 keys").wait_for()
        assert await cells("training.steps") == ["600", "18"]
        assert await cells("training.learning_rate") == ["1e-5", "0.0002"]
        # Every chart has both, over the steps of both.
        await chromium.until(f"() => ({POINTS})().length === 11")
        assert set(await chromium.ask(POINTS)) == {18}
        for run in ("live", "done"):
            assert await page.locator(".u-legend", has_text=run).count() == 11
        # In the words that a job's own page has for them, and a report.
        compared = await page.locator("main .panel h3").all_text_contents()
        assert compared == [f"{curve.title} {curve.unit}" for curve in CURVES.values()]
        kept = "() => document.querySelector('.chart').chart.data.slice(1, 3)"
        one, two = await chromium.ask(kept)
        assert [sum(v is not None for v in each) for each in (one, two)] == [2, 18]
        # What neither measures has no row; what one does, has.
        assert await cells("KL to the base model") == []
        live.known["done"].latest_metrics["train/kl_reference"] = 0.052
        await page.get_by_role("button", name="Compare").click()
        await page.get_by_role("cell", name="0.052").wait_for()
        assert await cells("KL to the base model") == ["–", "0.052"]
        await page.get_by_label("with").fill("none")
        await page.get_by_role("button", name="Compare").click()
        await page.get_by_text("there is no job 'none'").wait_for()
        assert [each for each in chromium.complaints if "404" not in each] == []
        await page.goto(f"{here.url}/#/jobs/done")
        await page.get_by_role("heading", name="Learning").wait_for()
        own = page.locator("main .panel h3", has_text=compared[-1])
        await own.wait_for()
        assert set(compared[2:]) < set(await page.locator("main .panel h3").all_text_contents())


async def test_a_version_tells_what_it_came_from_and_an_alias_that_moved_stays(
    fake: FakePodium,
) -> None:
    for model, version in (("first", 7), ("live", 1), ("live", 2), ("live", 3)):
        made = fake.registry.publish(model, version, {"adapter/a": b"x"})
        del made.aliases[:]
        before = ("first", 7) if (model, version) == ("live", 1) else (model, version - 1)
        if model == "live":
            made.manifest.parents.add(model=before[0], version=before[1])
    fake.registry.versions[0].aliases.append("prod")
    async with console(fake) as here, browser(here.url) as chromium:
        page = chromium.page
        await chromium.open("/models")
        await page.get_by_role("link", name="live", exact=True).click()
        await page.get_by_role("button", name="lineage of version 3").click()
        runs = page.locator(".lineage li")
        await runs.first.wait_for()
        assert await runs.all_text_contents() == ["live@2 … live@1", "first@7"]
        await page.get_by_role("button", name="give version 1 an alias").click()
        await page.get_by_label("Alias", exact=True).fill("prod")
        await page.get_by_role("button", name="Next").click()
        await page.get_by_text("It points at version 3 now").wait_for()
        # Somebody else is quicker.
        fake.registry.versions[0].aliases.remove("prod")
        fake.registry.versions[1].aliases.append("prod")
        await page.get_by_role("button", name="Point it there").click()
        await page.locator(".toast", has_text="prod points at 2").wait_for()
        assert list(fake.registry.versions[1].aliases) == ["prod"]
        assert [each for each in chromium.complaints if "409" not in each] == []


async def test_one_talks_with_a_checkpoint_which_is_loaded_once_that_is_asked_for(
    fake: FakePodium,
) -> None:
    fake.registry.publish("live", 3, {"adapter/a": b"x"})
    async with console(fake) as here, browser(here.url) as chromium:
        page = chromium.page
        await chromium.open("/models/live")
        await page.get_by_role("link", name="Chat").last.click()
        # The page writes it when it has been drawn.
        await expect(page.get_by_label("Policy")).to_have_value("live@3", timeout=30_000)
        message = page.get_by_label("Message", exact=True)
        await message.fill("one two")
        await page.get_by_role("button", name="Send").click()
        await page.get_by_text("does not serve this policy now").wait_for()
        assert (fake.inference.loaded, fake.inference.chats) == ([], [])
        # What one wrote is not lost.
        assert await message.input_value() == "one two"
        await page.get_by_role("button", name="Load it and send").click()
        answers = page.locator(".chat .assistant pre")
        await answers.get_by_text("two one").wait_for()
        await page.locator("#words:focus").wait_for()
        await message.fill("three four")
        await page.keyboard.press("Control+Enter")
        await answers.get_by_text("four three").wait_for()
        assert fake.inference.loaded == [("live", 3)]
        last = fake.inference.chats[-1]
        assert (last.policy.job, last.policy.version) == ("live", 3)
        user, assistant = trajectory_pb2.ROLE_USER, trajectory_pb2.ROLE_ASSISTANT
        said = [(each.role, each.content.strip()) for each in last.messages]
        assert said == [(user, "one two"), (assistant, "two one"), (user, "three four")]
        await page.get_by_label("Policy").fill("none@best")
        await message.fill("anybody?")
        await page.get_by_role("button", name="Send").click()
        await page.get_by_text("no such version of none").wait_for()
        # What was not served, and what there is not.
        rest = [each for each in chromium.complaints if "409" not in each and "404" not in each]
        assert rest == []
