"""Who has a worker, for how long, and what becomes of one that ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from podium.jobs.v1 import job_service_pb2 as pb
from podium_tracking import supervisor, worker
from podium_tracking.adapters.secrets import Secrets
from podium_tracking.settings import Settings
from prometheus_client import REGISTRY
from support.tracking import job_of
from support.waiting import eventually

ENVIRONMENT = {"WANDB_API_KEY": "key", "OPENPIPE_API_KEY": "key"}


class Listed:
    """Jobs, as the controller lists them."""

    def __init__(self, *names: str, **tracking: Any) -> None:
        self.jobs = []
        for name in names:
            job = job_of(tracking, pb.JOB_STATE_RUNNING)
            job.id = name
            self.jobs.append(job)

    async def list(self) -> AsyncIterator[pb.Job]:
        for each in self.jobs:
            yield each


class Scripted:
    """In a worker's place: tells what it is given, and ends when it is asked or told to."""

    started: list[tuple[str, str, dict[str, str]]]
    told: list[tuple[str, int]]
    code: int | None

    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[str, int] | None] = asyncio.Queue()
        for each in self.told:
            self.queue.put_nowait(each)
        if self.code is not None:
            self.queue.put_nowait(None)

    @classmethod
    async def start(cls, job_id: str, tracker: str, secret: Mapping[str, str]) -> Scripted:
        cls.started.append((job_id, tracker, dict(secret)))
        return cls()

    async def next(self) -> tuple[str, int] | None:
        return await self.queue.get()

    async def wait(self) -> int:
        return self.code or 0

    def stop(self) -> None:
        self.queue.put_nowait(None)

    async def kill(self) -> None:
        self.queue.put_nowait(None)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    Scripted.started, Scripted.told, Scripted.code = [], [], None
    monkeypatch.setattr(supervisor, "TrackerProcess", Scripted)
    monkeypatch.setattr(supervisor, "_FIRST_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(supervisor, "_PLACE_SECONDS", 0.0)
    return Scripted


async def watched(
    jobs: Listed, tmp_path: Path, condition: Callable[[], bool], **settings: Any
) -> None:
    found = Settings(data_dir=tmp_path, poll_seconds=0.002, retry_seconds=0.002, **settings)
    async with supervisor.TrackingSupervisor(jobs, found, Secrets(None, ENVIRONMENT)).running():
        await eventually(condition)


def failures(tracker: str, reason: str) -> float:
    labels = {"tracker": tracker, "reason": reason}
    return REGISTRY.get_sample_value("podium_tracking_failures_total", labels) or 0.0


async def test_more_trackers_than_places_take_turns(
    scripted: type[Scripted], tmp_path: Path
) -> None:
    jobs = Listed("a", "b", "c", wandb={})
    await watched(
        jobs,
        tmp_path,
        lambda: {job for job, *_ in scripted.started} == {"a", "b", "c"},
        max_workers=1,
    )
    assert [job for job, *_ in scripted.started][:3] == ["a", "b", "c"]


async def test_a_worker_has_the_variables_of_its_tracker_alone(
    scripted: type[Scripted], tmp_path: Path
) -> None:
    jobs = Listed("a", wandb={}, openpipe={}, langfuse={}, mlflow={"secret": "team"})
    await watched(jobs, tmp_path, lambda: len(scripted.started) >= 2)
    assert sorted(scripted.started) == [
        ("a", "openpipe", {"OPENPIPE_API_KEY": "key"}),
        ("a", "wandb", {"WANDB_API_KEY": "key"}),
    ]


async def test_an_offline_run_needs_no_key(scripted: type[Scripted], tmp_path: Path) -> None:
    jobs = Listed("a", wandb={"mode": "WANDB_MODE_OFFLINE"})
    found = Settings(data_dir=tmp_path, poll_seconds=0.002)
    async with supervisor.TrackingSupervisor(jobs, found, Secrets(None, {})).running():
        await eventually(lambda: bool(scripted.started))
    assert scripted.started == [("a", "wandb", {})]


async def test_one_that_fails_is_tried_again_and_one_without_a_package_is_left(
    scripted: type[Scripted], tmp_path: Path
) -> None:
    before = failures("wandb", "failed")
    scripted.code = worker.FAILED
    await watched(Listed("a", wandb={}), tmp_path, lambda: failures("wandb", "failed") > before + 2)
    scripted.started.clear()
    scripted.code = worker.NO_PACKAGE
    missing = failures("wandb", "no_package")
    await watched(
        Listed("a", wandb={}), tmp_path, lambda: failures("wandb", "no_package") > missing
    )
    assert len(scripted.started) == 1


async def test_one_that_says_nothing_while_it_is_busy_is_ended(
    scripted: type[Scripted], tmp_path: Path
) -> None:
    before = failures("wandb", "stalled")
    scripted.told = [("start", 0)]
    await watched(
        Listed("a", wandb={}),
        tmp_path,
        lambda: failures("wandb", "stalled") > before,
        stall_seconds=0.005,
    )


async def test_one_that_waits_for_news_is_left_in_peace_and_its_lag_is_told(
    scripted: type[Scripted], tmp_path: Path
) -> None:
    before = failures("wandb", "stalled")
    scripted.told = [("start", 0), ("end", 0), ("step", 2)]

    def lag() -> float | None:
        return REGISTRY.get_sample_value("podium_tracking_lag_steps", {"tracker": "wandb"})

    await watched(Listed("a", wandb={}), tmp_path, lambda: lag() == 1, stall_seconds=0.005)
    assert failures("wandb", "stalled") == before
    assert len(scripted.started) == 1
