"""Whole jobs: a real controller over real gRPC, the services that it drives as doubles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import podium
import pytest
from podium.core.errors import (
    FailedPreconditionError,
    NotFoundError,
    OutOfRangeError,
    PodiumError,
)
from podium.core.trajectory_rows import rows_of
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from podium.sdk.connection.addresses import Addresses
from podium.sdk.evaluation import attempts_of, job_evaluation, summarise
from podium.types.v1 import spec_pb2
from prometheus_client import REGISTRY
from support.controlled import (
    ATTEMPTS,
    GROUPS,
    Client,
    assert_every_step_once,
    small_job,
)
from support.controlled_fixtures import client, fleet, registry
from support.fleet import Fleet
from support.fleet_doubles import HELDOUT_SCENARIOS

__all__ = ["client", "fleet", "registry"]


@pytest.fixture
async def sdk(fleet: Fleet, client: Client) -> AsyncIterator[podium.AsyncClient]:
    where = {"registry": fleet.registry.address, "inference": "", "rollout": "", "judge": ""}
    async with podium.AsyncClient(Addresses(controller=client.address, **where)) as connected:
        yield connected


def sample(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"podium_controller_{name}", labels)


async def test_a_whole_job(fleet: Fleet, client: Client, sdk: podium.AsyncClient) -> None:
    spec = small_job(
        4,
        evaluation=spec_pb2.EvaluationSpec(every_steps=2, samples=2, greedy=True),
        retention=spec_pb2.RetentionSpec(keep_last=2, keep_best=1),
    )
    created = await client.create(spec)
    assert created.state == pb.JOB_STATE_QUEUED
    assert created.id.startswith("double-")
    job = await client.succeeded(created.id)
    await assert_every_step_once(fleet, client, job.id, 4)
    assert job.completed_steps == 4
    assert job.phase == ""
    assert job.start_time.ToNanoseconds() < job.end_time.ToNanoseconds()
    assert not job.HasField("remaining_seconds")

    for step in await client.steps(job.id):
        assert step.metrics["tokens_sampled"] == GROUPS * ATTEMPTS * 3
        assert step.metrics["staleness_max"] == 0
        assert step.metrics["train/loss"] == 1 / step.number
        assert {"reward_mean", "success_mean"} <= set(step.metrics)
        seconds = {name for name in step.metrics if name.startswith("seconds/")}
        phases = ["collect", "judge", "train", "publish", "serve"]
        if step.number > 1:
            # The state of the version before it goes first.
            phases.append("state")
        assert seconds == {f"seconds/{phase}" for phase in phases}
        assert step.start_time.ToNanoseconds() < step.commit_time.ToNanoseconds()
    assert job.latest_metrics == (await client.steps(job.id))[-1].metrics
    # Strictly on-policy: each step's spans are of the version before it.
    assert fleet.trainer.ages == {step: [step - 1] * GROUPS * ATTEMPTS for step in range(1, 5)}
    assert fleet.trainer.taken == [(job.id, step) for step in range(1, 5)]
    assert set(fleet.rollout.collected.values()) == {1}
    assert fleet.rollout.most_running <= 8

    evaluations = await client.evaluations(job.id)
    assert [(e.version, e.mode) for e in evaluations] == [
        (version, mode) for version in (0, 2, 4) for mode in ("greedy", "sampled")
    ]
    for evaluation in evaluations:
        attempts = 1 if evaluation.mode == "greedy" else 2
        assert evaluation.episodes == attempts * HELDOUT_SCENARIOS
        assert set(evaluation.metrics) == {"success", "turns", "reward"}
        assert evaluation.success_low <= evaluation.metrics["success"] <= evaluation.success_high
        listed = await client.trajectories(job.id, step=evaluation.version, evaluation=True)
        assert {(t.job_id, t.step) for t in listed} == {(job.id, evaluation.version)}
        own = [t for t in listed if t.evaluation_mode == evaluation.mode]
        assert len(own) == evaluation.episodes
        # Scenario by scenario it is what was told: it can be compared with any other.
        name = f"{job.id}@{evaluation.version}/{evaluation.mode}"
        header, results = await job_evaluation(sdk, name)
        found = summarise(attempts_of(results))
        assert (header.environment.name, header.environment.split) == ("double", "heldout")
        assert (found.scenarios, found.attempts) == (HELDOUT_SCENARIOS, evaluation.episodes)
        assert found.success == evaluation.metrics["success"]
        assert (found.low, found.high) == (evaluation.success_low, evaluation.success_high)
        assert found.reward == pytest.approx(evaluation.metrics["reward"])
        assert found.reward_low == pytest.approx(evaluation.reward_low)
        assert found.reward_high == pytest.approx(evaluation.reward_high)
    with pytest.raises(NotFoundError, match="version 3; it has those of 0/greedy, 0, 2/greedy"):
        await job_evaluation(sdk, f"{job.id}@3")
    greedy = [r for r in fleet.rollout.requests if "-greedy/" in r.group_id]
    assert {r.sampling.temperature for r in greedy} == {0.0}
    assert all(r.policy.HasField("version") for r in fleet.rollout.requests)

    sampled = {e.version: e.metrics["success"] for e in evaluations if e.mode == "sampled"}
    best = await fleet.client.get_version(job.id, "best")
    assert sampled[best.manifest.version] == max(sampled.values())
    kept = {v.manifest.version for v in await fleet.client.list_versions(job.id)}
    assert kept == {3, 4, best.manifest.version}
    last = await fleet.client.get_version(job.id, 4)
    assert last.evaluation_metrics["success"] == sampled[4]
    assert "greedy/success" in last.evaluation_metrics
    # It stays loaded to be talked to, and its trainer is free.
    assert (fleet.inference.job, fleet.inference.version) == (job.id, 4)
    assert fleet.trainer.job == ""
    # A job's own series end with it.
    assert sample("steps_total", job=job.id) is None
    assert sample("reward_mean", job=job.id) is None


async def test_an_attempt_that_was_drawn_before_its_step_says_which_took_it(client: Client) -> None:
    order = spec_pb2.GROUP_ORDER_READY
    job = await client.create(small_job(2, max_staleness=1, group_order=order))
    await client.succeeded(job.id)
    took = {group: step.number for step in await client.steps(job.id) for group in step.group_ids}
    listed = [t for t in await client.trajectories(job.id) if t.group_id in took]
    assert len(listed) == 2 * GROUPS * ATTEMPTS
    for row in (row for t in listed for row in rows_of(t)):
        assert (row["job"], row["phase"]) == (job.id, "training")
        assert row["step"] == took[row["group_id"]]


async def test_watch_tells_everything_once_and_ends_with_the_job(
    fleet: Fleet, client: Client
) -> None:
    spec = small_job(2, evaluation=spec_pb2.EvaluationSpec())
    job = await client.create(spec)
    updates: list[pb.WatchJobResponse] = []
    with rpc_errors("controller"):
        # In two parts, as a client does that lost its connection.
        call = client.stub.WatchJob(pb.WatchJobRequest(job_id=job.id))
        async for update in call:
            updates.append(update)
            if len(updates) == 4:
                break
        call.cancel()
        resume = pb.WatchJobRequest(job_id=job.id, after_sequence=updates[-1].event.sequence)
        updates += [update async for update in client.stub.WatchJob(resume)]
    assert [u.event for u in updates] == await client.events(job.id)
    assert [u.step for u in updates if u.HasField("step")] == await client.steps(job.id)
    told = [u.evaluation for u in updates if u.HasField("evaluation")]
    assert sorted(told, key=lambda e: e.version) == await client.evaluations(job.id)
    assert updates[-1].job.state == pb.JOB_STATE_SUCCEEDED
    with rpc_errors("controller"):
        last = pb.WatchJobRequest(job_id=job.id, after_sequence=updates[-1].event.sequence)
        assert [update async for update in client.stub.WatchJob(last)] == []
    last.after_sequence += 1
    with pytest.raises(OutOfRangeError), rpc_errors("controller"):
        [update async for update in client.stub.WatchJob(last)]


async def test_deleting_leaves_the_checkpoints(fleet: Fleet, client: Client) -> None:
    release = asyncio.Event()

    async def hold(point: str, about: str) -> None:
        if point == "step:begin":
            await release.wait()

    fleet.at = hold
    job = await client.create(small_job(1))
    delete = pb.DeleteJobRequest(job_id=job.id)
    await client.until(job.id, lambda j: j.phase == "train")
    with pytest.raises(FailedPreconditionError), rpc_errors("controller"):
        await client.stub.DeleteJob(delete)
    release.set()
    await client.succeeded(job.id)
    with rpc_errors("controller"):
        await client.stub.DeleteJob(delete)
        await client.stub.DeleteJob(delete)
    with pytest.raises(NotFoundError):
        await client.get(job.id)
    with pytest.raises(PodiumError):
        await client.events(job.id)
    assert (await fleet.client.get_version(job.id, "latest")).manifest.version == 1


async def test_attempts_that_were_too_long_are_an_event_with_their_number(
    fleet: Fleet, client: Client
) -> None:
    fleet.trainer.tells = {"trajectories_over_max_row_tokens": 3, "trajectory_tokens_max": 5012}
    await client.succeeded((await client.create(small_job(1), "too-long")).id)
    (event,) = [e for e in await client.events("too-long") if e.type == pb.EVENT_TYPE_WARNING]
    assert event.step == 1
    assert event.message == (
        "3 attempts are left out of the loss, longer than training.max_row_tokens, 4096;"
        " the longest has 5012 tokens (OVER_MAX_ROW_TOKENS)"
    )
