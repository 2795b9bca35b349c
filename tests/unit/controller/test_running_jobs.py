"""Whole jobs on fakes of every port: what overlaps, what is shown, what is taken back."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter

import pytest
from podium.core.errors import AlreadyExistsError, InternalError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.training import loop
from prometheus_client import REGISTRY
from support.controlled import ATTEMPTS, GROUPS, small_job
from support.memory_fixtures import client, fleet
from support.memory_fleet import (
    MemoryClient,
    MemoryFleet,
    assert_every_step_once,
    memory_controller,
)
from support.waiting import eventually

__all__ = ["client", "fleet"]


def sample(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"podium_controller_{name}", labels)


async def test_series_of_a_running_job(fleet: MemoryFleet, client: MemoryClient) -> None:
    hold = fleet.hold("step:begin", "2")
    job = await client.create(small_job(2))
    await hold.reached()
    running = await client.until(job.id, lambda job: job.phase == "train")
    assert running.completed_steps == 1
    assert sample("steps_total", job_id=job.id) == 1
    assert sample("tokens_total", job_id=job.id) == GROUPS * ATTEMPTS
    for name in ("reward_mean", "success_ratio", "last_step_timestamp_seconds"):
        assert sample(name, job_id=job.id) is not None
    assert sample("leader") == 1
    assert sample("step_duration_seconds_count", phase="collect") is not None
    assert running.HasField("remaining_seconds")
    hold.release()
    await client.succeeded(job.id)
    # A job's own series end with it.
    await eventually(lambda: sample("steps_total", job_id=job.id) is None)
    assert sample("reward_mean", job_id=job.id) is None


async def test_a_step_takes_no_less_than_nothing_when_the_clock_is_set_back(
    fleet: MemoryFleet, client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "now_ns", lambda: time.time_ns() - 3600 * 10**9)
    before = sample("step_duration_seconds_sum", phase="total") or 0.0
    job = await client.create(small_job(1))
    await client.succeeded(job.id)
    (step,) = await client.steps(job.id)
    assert step.start_time.ToNanoseconds() <= step.commit_time.ToNanoseconds()
    assert (sample("step_duration_seconds_sum", phase="total") or 0.0) >= before


async def test_t22_collection_overlaps_training_within_its_staleness(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    """With max_staleness 1 step n + 1 is collected while step n trains, and no further."""
    collected: Counter[int] = Counter()
    ahead: list[int] = []

    async def watch(point: str, about: str) -> None:
        if point == "collect:end":
            collected[int(about.split("/s")[1].split("/")[0])] += 1
        elif point == "step:begin" and about != "5":
            step = int(about)
            await eventually(lambda: collected[step + 1] == GROUPS)
            # Whatever else could be collected now is asked for.
            for _ in range(200):
                await asyncio.sleep(0)
            ahead.append(max(collected) - step)

    fleet.at = watch
    job = await client.create(small_job(5, max_staleness=1))
    await client.succeeded(job.id)
    await assert_every_step_once(fleet, client, job.id, 5)
    assert ahead == [1] * 4
    staleness = [step.metrics["staleness_max"] for step in await client.steps(job.id)]
    assert staleness == [0, 1, 1, 1, 1]
    # Nothing is pinned: it follows what the pool has.
    requests = fleet.watched_rollout.requests
    assert not any(request.policy.HasField("version") for request in requests)
    assert set(fleet.rollout.collected.values()) == {1}


async def test_what_a_forgotten_job_left_behind_is_taken_back(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    """The first job's trainer could not be told that it ended."""
    first = await client.create(small_job(1), "first")

    async def break_close(point: str, about: str) -> None:
        if point == "close" and fleet.calls["close"] == 1:
            raise InternalError("the trainer could not hear it")

    fleet.at = break_close
    await client.succeeded(first.id)
    assert fleet.trainer.job == first.id
    second = await client.create(small_job(1), "second")
    await client.succeeded(second.id)
    assert fleet.inference.job == second.id


async def test_checkpoints_of_an_unknown_job_are_never_continued(fleet: MemoryFleet) -> None:
    async with memory_controller(fleet) as client:
        await client.create(small_job(1), "mine")
        await client.succeeded("mine")
    # As with another database.
    fleet.database.jobs.clear()
    async with memory_controller(fleet) as client:
        with pytest.raises(AlreadyExistsError) as raised:
            await client.create(small_job(1), "mine")
    assert raised.value.reason == "MODEL_EXISTS"


async def test_steps_that_train_nothing_are_told_of_once_with_what_to_change(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    fleet.rollout.luck = 0.25
    job = await client.create(small_job(4))
    await client.succeeded(job.id)
    (event,) = [e for e in await client.events(job.id) if e.type == pb.EVENT_TYPE_WARNING]
    # Three steps of three groups are too few to tell.
    assert event.step == 4
    assert "in 100 % of the groups of the last 4 steps" in event.message
    assert "raise rollout.group_size" in event.message
    assert event.message.endswith("(NO_VARIANCE)")


@pytest.mark.parametrize(
    ("metric", "values"),
    [
        ("", (1e308, 1.7e308)),
        ("", (1e308, -1e308)),
        ("", (math.inf, -math.inf)),
        ("time", (1e308, 1e308)),
        ("time", (math.inf, -math.inf)),
        ("success", (1e308, 1e308)),
        ("turns", (math.inf, -math.inf)),
        ("history_splits", (math.inf, -math.inf)),
    ],
)
async def test_no_number_of_an_environment_ends_a_job(
    fleet: MemoryFleet, client: MemoryClient, metric: str, values: tuple[float, float]
) -> None:
    def tell(attempt: trajectory_pb2.Trajectory) -> None:
        value = values[attempt.attempt % 2]
        if metric:
            attempt.metrics[metric] = value
        else:
            attempt.environment_reward = value

    fleet.rollout.tell = tell
    evaluation = spec_pb2.EvaluationSpec(every_steps=1)
    job = await client.create(small_job(1, evaluation=evaluation))
    await client.succeeded(job.id)
