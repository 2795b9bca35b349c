"""Steps and events are read once for all who look; a look again asks for what is new."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from podium.jobs.v1 import job_service_pb2 as jobs
from podium_console.adapters.growing import PAGE, Growing
from podium_console.adapters.history import JobHistory
from podium_console.domain.series import StepSeries
from support import fake_podium as doubles
from support.console import Console, PagedJobs, console
from support.fake_job_service import watched_job
from support.fake_podium import FakePodium, fake_podium
from support.job_records import job, steps

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def look(here: Console, path: str = "steps", token: str = "", **query: Any) -> Any:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    answer = await here.http.get(f"/api/jobs/a/{path}", params=query, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def asked(fake: FakePodium) -> list[int]:
    """The rows of each page since this was asked last."""
    assert isinstance(fake.jobs, PagedJobs)
    found, fake.jobs.pages = fake.jobs.pages, []
    return found


async def test_a_second_look_asks_for_the_last_page_and_what_came_after_it(
    fake: FakePodium, here: Console
) -> None:
    every = steps(8 * PAGE + 10)
    fake.jobs.steps = every[: 6 * PAGE + 20]
    assert (await look(here))["numbers"] == list(range(1, 6 * PAGE + 21))
    assert asked(fake) == [PAGE] * 6 + [20]
    fake.jobs.steps = every[: 6 * PAGE + 23]
    found = await look(here)
    assert found["numbers"] == list(range(1, 6 * PAGE + 24))
    assert found["metrics"]["train/loss"][-1] == pytest.approx(
        every[6 * PAGE + 22].metrics["train/loss"], rel=1e-5
    )
    assert asked(fake) == [23]
    # A browser that has the others is sent the new ones.
    fake.jobs.steps = every
    found = await look(here, after=6 * PAGE + 23)
    assert found["numbers"] == list(range(6 * PAGE + 24, 8 * PAGE + 11))
    assert {len(column) for column in found["metrics"].values()} == {len(found["numbers"])}
    assert found["total"] == len(every)
    assert asked(fake) == [PAGE, PAGE, 10]
    assert (await look(here, after=len(every)))["numbers"] == []
    assert asked(fake) == [10]


async def test_those_who_look_at_once_share_what_is_read(fake: FakePodium, here: Console) -> None:
    fake.jobs.steps = steps(5 * PAGE)
    looks = await asyncio.gather(*(look(here) for _ in range(10)))
    assert all(each == looks[0] for each in looks)
    # The first reads them all, each of the others the last page.
    assert asked(fake) == [PAGE] * (5 + 9)


async def test_events_are_read_once(fake: FakePodium, here: Console) -> None:
    fake.jobs.updates = watched_job(fake.jobs.known["a"], 3 * PAGE)
    known = len(fake.jobs.updates)
    fake.jobs.listed = known - 5
    for last in (known - 5, known):
        page = await look(here, "events", size=10)
        assert [each["sequence"] for each in page["events"]] == list(range(last - 9, last + 1))
        assert page["last"] == last
        fake.jobs.listed = None
    older = await look(here, "events", size=10, before=20)
    assert [each["sequence"] for each in older["events"]] == list(range(10, 20))
    assert len(asked(fake)) == math.ceil(known / PAGE) + 2


async def test_steps_of_an_installation_that_begins_anew_are_not_mixed_with_the_old_ones(
    fake: FakePodium, here: Console
) -> None:
    old = steps(2 * PAGE + 5)
    for begun_anew in (steps(3), steps(2 * PAGE + 5), steps(4 * PAGE), []):
        fake.jobs.steps = old
        await look(here)
        for step in begun_anew:
            step.commit_time.seconds += 1
            step.metrics["train/loss"] = 7.0
        fake.jobs.steps = begun_anew
        found = await look(here)
        assert found["numbers"] == [step.number for step in begun_anew]
        assert set(found["metrics"].get("train/loss", [])) <= {7.0}


async def test_tokens_that_another_version_of_the_controller_made_are_given_up(
    fake: FakePodium, here: Console
) -> None:
    assert isinstance(fake.jobs, PagedJobs)
    fake.jobs.steps = steps(2 * PAGE + 5)
    await look(here)
    fake.jobs.token_version = 2
    assert len((await look(here))["numbers"]) == 2 * PAGE + 5


async def test_a_controller_that_goes_away_in_between_is_asked_for_the_rest(
    fake: FakePodium, here: Console
) -> None:
    assert isinstance(fake.jobs, PagedJobs)
    fake.jobs.steps = steps(4 * PAGE)
    fake.jobs.break_after_pages = 2
    assert (await here.http.get("/api/jobs/a/steps")).status_code == 503
    fake.jobs.break_after_pages = None
    assert asked(fake) == [PAGE, PAGE]
    assert (await look(here))["numbers"] == list(range(1, 4 * PAGE + 1))
    assert asked(fake) == [PAGE] * 3


async def test_what_is_known_is_told_only_to_those_whom_the_controller_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("the-token\n")
    monkeypatch.setattr(doubles, "FakeJobs", PagedJobs)
    async with fake_podium(auth_tokens_file=tokens) as fake, console(fake) as here:
        fake.jobs.known["a"] = job("a")
        fake.jobs.steps = steps(3)
        fake.jobs.updates = watched_job(fake.jobs.known["a"], 3)
        for what in ("steps", "events"):
            assert await look(here, what, "the-token")
            for headers in ({"authorization": "Bearer another"}, {}):
                refused = await here.http.get(f"/api/jobs/a/{what}", headers=headers)
                assert refused.status_code == 401


async def test_of_very_many_jobs_the_ones_looked_at_last_are_kept_and_of_none_that_are_not_there(
    fake: FakePodium, here: Console
) -> None:
    async def ask(token: str) -> tuple[Sequence[jobs.Step], str]:
        asked_for.append(token)
        return steps(3), ""

    asked_for: list[str] = []
    one = Growing[jobs.Step, StepSeries](StepSeries, lambda row: row.number, 2**30)
    weight = (await one.look("a", ask)).weight
    growing = Growing[jobs.Step, StepSeries](
        StepSeries, lambda row: row.number, 10 * (4096 + weight)
    )
    kept = {f"job-{n}": await growing.look(f"job-{n}", ask) for n in range(20)}
    again = {name: await growing.look(name, ask) for name in reversed(kept)}
    assert [again[name] is kept[name] for name in kept] == [False] * 10 + [True] * 10
    history = here.app.state.installation.history
    assert isinstance(history, JobHistory)
    for name in ("x", "y"):
        assert (await here.http.get(f"/api/jobs/{name}/steps")).status_code == 404
    fake.jobs.steps = []
    await look(here)
    assert len(history._steps._listings) == 0


async def test_whoever_leaves_while_it_is_read_takes_nothing_from_the_others() -> None:
    rows = steps(3 * PAGE)
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def ask(token: str) -> tuple[Sequence[jobs.Step], str]:
        at = int(token or 0)
        if at == PAGE and not go_on.is_set():
            reached.set()
            await go_on.wait()
        end = at + PAGE
        return rows[at:end], str(end) if end < len(rows) else ""

    growing = Growing[jobs.Step, StepSeries](StepSeries, lambda row: row.number, 2**20)
    first = asyncio.create_task(growing.look("a", ask))
    second = asyncio.create_task(growing.look("a", ask))
    await reached.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    go_on.set()
    assert (await second).plain()["numbers"] == [row.number for row in rows]
