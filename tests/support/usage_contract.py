"""What every store of the controller holds of what jobs have used.

As in `store_contract`: a module that imports these tests has a fixture `stores`.
"""

from __future__ import annotations

import asyncio
import functools

import pytest
from podium.core.errors import FailedPreconditionError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.judge.v1.judge_service_pb2 import JudgeUsage
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain import job_states
from podium_controller.domain.errors import LeaseLostError
from podium_controller.domain.ports import COLLECTED, JUDGED, GroupKey
from podium_controller.domain.timestamps import now_ns
from podium_controller.domain.waits import Wait
from podium_controller.store import NewBatch
from podium_controller.store.jobs import NewJob
from podium_controller.store.usage import HOUR
from support.stores import Stores, group, lead, new, step


def spoken(number: int, index: int) -> trajectory_pb2.Group:
    """A group of three attempts: ten tokens each, four of them sampled, in two seconds."""
    made = group(number, index)
    for attempt in made.trajectories:
        tokens = attempt.histories.add().tokens
        tokens.token_ids.extend(range(10))
        tokens.spans.add(start=2, length=1)
        tokens.spans.add(start=5, length=3)
        attempt.start_time.FromSeconds(100)
        attempt.end_time.FromSeconds(102)
    return made


async def test_tokens_are_counted_once_with_what_stores_them(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    assert (await stores.jobs.get("job")).usage == pb.Usage()
    judged = JudgeUsage(calls=2, prompt_tokens=100, completion_tokens=10, cost=0.5)
    for index in range(2):
        key = GroupKey("job", 1, index)
        await ledger.save_group(key, COLLECTED, spoken(1, index))
        await ledger.save_judged(key, spoken(1, index), judged, "2026-11")
    once = (await stores.jobs.get("job")).usage
    assert once == pb.Usage(
        prompt_tokens=36,
        sampled_tokens=24,
        episode_seconds=12,
        judge_calls=4,
        judge_prompt_tokens=200,
        judge_completion_tokens=20,
        judge_cost=1.0,
    )
    # Stored again, as when all groups of a step were of no use, it is no more.
    await ledger.save_group(GroupKey("job", 1, 0), COLLECTED, spoken(1, 0))
    assert (await stores.jobs.get("job")).usage == once
    # Collected again, it is.
    await ledger.drop_group(GroupKey("job", 1, 0))
    await ledger.save_group(GroupKey("job", 1, 0), COLLECTED, spoken(1, 0))
    assert (await stores.jobs.get("job")).usage.sampled_tokens == 36
    await ledger.start("job", "pool")
    done = step(1, "job/s1/g0", "job/s1/g1")
    done.metrics["train/tokens_trained"] = 20
    done.metrics["teacher/tokens"] = 48
    await asyncio.gather(*(ledger.commit_step("job", done) for _ in range(3)))
    (listed,), _ = await stores.jobs.page([], None, 10)
    assert (listed.usage.trained_tokens, listed.usage.teacher_tokens) == (20, 48)
    assert listed.usage == (await stores.jobs.get("job")).usage


def _one_group(index: int, spec: spec_pb2.JobSpec, number: int) -> list[trajectory_pb2.Group]:
    return [spoken(number, index)]


async def test_a_batch_is_counted_unless_nobody_sampled_it(stores: Stores) -> None:
    spec = spec_pb2.JobSpec(base_model="m", training=spec_pb2.TrainingSpec(steps=5))
    spec.client.SetInParent()
    await stores.jobs.create(NewJob("sampled", spec, "", "d", ""))
    spec.sft.SetInParent()
    await stores.jobs.create(NewJob("rows", spec, "", "d", ""))
    for index, job_id in enumerate(("sampled", "rows")):
        one = functools.partial(_one_group, index)
        assert await stores.batches.submit(NewBatch(job_id, "a", "d", 1), one) == 1
    assert (await stores.jobs.get("sampled")).usage.sampled_tokens == 12
    assert (await stores.jobs.get("rows")).usage == pb.Usage()


async def test_a_report_counts_once_however_often_it_is_made(stores: Stores) -> None:
    ledger = await lead(stores, "old", ttl=0.01)
    await stores.jobs.create(new())
    used = pb.Usage(trainer_seconds=10, trainer_gpu_seconds=40, pool_seconds=5, pool_gpu_seconds=5)
    await asyncio.gather(*(ledger.usage.report("job", 1, used) for _ in range(3)))
    await ledger.usage.report("job", 2, used)
    await ledger.usage.report("job", 1, used)
    assert (await ledger.usage.totals(["job", "none"])) == {
        "job": pb.Usage(
            trainer_seconds=20, trainer_gpu_seconds=80, pool_seconds=10, pool_gpu_seconds=10
        ),
        "none": pb.Usage(),
    }
    async with asyncio.timeout(120):
        while (epoch := await stores.leases.acquire("next", 60)) is None:
            await asyncio.sleep(0.01)
    with pytest.raises(LeaseLostError):
        await ledger.usage.report("job", 3, used)
    # Its successor counts from 1 again.
    await stores.ledger(epoch).usage.report("job", 1, used)
    assert (await stores.jobs.get("job")).usage.trainer_seconds == 30


async def test_usage_outlives_its_job(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    await ledger.save_group(GroupKey("job", 1, 0), JUDGED, spoken(1, 0))
    await stores.jobs.request("job", job_states.after_cancel)
    await stores.jobs.delete("job")
    assert (await ledger.usage.totals(["job"]))["job"].sampled_tokens == 12


async def test_what_projects_use_is_told_of_a_time_and_of_one_of_them(stores: Stores) -> None:
    ledger = await lead(stores)
    for job_id, project in (("job", "a"), ("two", "b"), ("three", "a")):
        made = new(job_id)
        made.spec.project = project
        await stores.jobs.create(made)
    for number, job_id in enumerate(("job", "two", "three"), start=1):
        await ledger.usage.report(job_id, number, pb.Usage(trainer_gpu_seconds=number))
    await stores.jobs.request("three", job_states.after_cancel)
    await stores.jobs.delete("three")
    assert await ledger.usage.of_projects(0) == {
        "a": pb.Usage(trainer_gpu_seconds=4),
        "b": pb.Usage(trainer_gpu_seconds=2),
    }
    assert list(await ledger.usage.of_projects(0, "b")) == ["b"]
    later = now_ns() // 10**9 + 2 * HOUR
    assert await ledger.usage.of_projects(later) == {}


async def test_a_job_that_has_used_what_it_may_rests_and_says_why(stores: Stores) -> None:
    ledger = await lead(stores)
    made = new()
    made.spec.budget.max_sampled_tokens = 10
    await stores.jobs.create(made)
    await ledger.start("job", "pool")
    why = Wait("BUDGET_EXHAUSTED", "10 of 10")
    assert await ledger.rest("job", why, made.spec.budget) == pb.JOB_STATE_PAUSED
    job = await stores.jobs.get("job")
    assert (job.phase, job.wait_reason, job.wait_message) == ("wait", why.reason, why.message)
    events, _ = await stores.jobs.events("job", 0, 10)
    assert events[-1].message == "the job is paused: 10 of 10"
    more = spec_pb2.BudgetSpec(max_sampled_tokens=20)
    resumed = await stores.jobs.request("job", job_states.after_resume, more)
    assert (resumed.state, resumed.wait_reason) == (pb.JOB_STATE_QUEUED, "")
    assert resumed.spec.budget == more
    # Given more while it was about to rest, it goes on.
    await ledger.start("job", "pool")
    assert await ledger.rest("job", why, made.spec.budget) == pb.JOB_STATE_QUEUED
    assert (await stores.jobs.get("job")).wait_reason == ""
    # What people asked for meanwhile holds.
    await ledger.start("job", "pool")
    await stores.jobs.request("job", job_states.after_cancel)
    assert await ledger.rest("job", why, more) == pb.JOB_STATE_CANCELLED
    with pytest.raises(FailedPreconditionError):
        await stores.jobs.request("job", job_states.after_resume, made.spec.budget)
    assert (await stores.jobs.get("job")).spec.budget == more
