"""Whole jobs: a real controller over real gRPC, the services that it drives as doubles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import podium
import pytest
from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    NotFoundError,
    OutOfRangeError,
    PodiumError,
)
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
    running_controller,
    small_job,
)
from support.controlled_fixtures import client, fleet, registry
from support.fake_judge import costing, fake_judge, scores
from support.fleet import Fleet
from support.fleet_doubles import HELDOUT_SCENARIOS
from support.waiting import eventually

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
        own = [t for t in listed if f"/v{evaluation.version}-{evaluation.mode}/" in t.group_id]
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


async def test_series_of_a_running_job(fleet: Fleet, client: Client) -> None:
    release = asyncio.Event()

    async def hold(point: str, about: str) -> None:
        if point == "step:begin" and about == "2":
            await release.wait()

    fleet.at = hold
    job = await client.create(small_job(2))
    await client.until(job.id, lambda j: j.completed_steps == 1 and j.phase == "train")
    assert sample("steps_total", job_id=job.id) == 1
    assert sample("tokens_total", job_id=job.id) == GROUPS * ATTEMPTS * 3
    for name in ("reward_mean", "success_ratio", "last_step_timestamp_seconds"):
        assert sample(name, job_id=job.id) is not None
    assert sample("leader") == 1
    assert sample("step_duration_seconds_count", phase="collect") is not None
    running = await client.get(job.id)
    assert running.HasField("remaining_seconds")
    release.set()
    await client.succeeded(job.id)


async def test_t22_collection_overlaps_training_within_its_staleness(
    fleet: Fleet, client: Client
) -> None:
    """With max_staleness 1 step n + 1 is collected while step n trains, and no further."""
    seen: list[tuple[int, int]] = []
    training = 0

    async def watch(point: str, about: str) -> None:
        nonlocal training
        if point == "step:begin":
            training = int(about)
            if training in (2, 3, 4):
                await eventually(lambda: any(step == training for step, _ in seen))
            # Long enough for the whole of the next step to be collected, and for one more.
            await asyncio.sleep(0.6)
        elif point == "step:taken":
            training = 0
        elif point == "collect:begin":
            await asyncio.sleep(0.1)
        elif point == "collect:end" and training:
            seen.append((training, int(about.split("/s")[1].split("/")[0])))

    fleet.at = watch
    job = await client.create(small_job(5, max_staleness=1))
    await client.succeeded(job.id)
    await assert_every_step_once(fleet, client, job.id, 5)
    assert {step for step, _ in seen} >= {2, 3, 4}
    assert {collected - step for step, collected in seen} == {1}
    for step, versions in fleet.trainer.ages.items():
        assert min(versions) >= step - 2
    staleness = [s.metrics["staleness_max"] for s in await client.steps(job.id)]
    assert staleness == [0, 1, 1, 1, 1]
    # Nothing is pinned: it follows what the pool has.
    assert not any(r.policy.HasField("version") for r in fleet.rollout.requests)
    assert set(fleet.rollout.collected.values()) == {1}


@pytest.mark.full
async def test_an_environment_that_always_fails_ends_the_job_in_its_own_words(
    fleet: Fleet, client: Client
) -> None:
    fleet.rollout.failing = True
    job = await client.create(small_job(3))
    failed = await client.state(job.id, pb.JOB_STATE_FAILED)
    assert failed.failure_reason == "ENVIRONMENT_FAILING"
    assert "KeyError: the inbox is missing" in failed.failure_message
    warnings = [e for e in await client.events(job.id) if e.type == pb.EVENT_TYPE_WARNING]
    assert len(warnings) == 2
    assert all("the inbox is missing" in event.message for event in warnings)
    assert fleet.trainer.taken == []
    assert (fleet.trainer.job, fleet.inference.job) == ("", "")


@pytest.mark.full
async def test_a_job_whose_judges_have_spent_their_budget_ends_with_that_reason(
    fleet: Fleet, client: Client
) -> None:
    async def restart(point: str, about: str) -> None:
        # A replica that knows nothing of step 1: only the controller's count is left.
        if point == "judge:begin" and "/s2/" in about:
            fleet.judge.forget()

    fleet.at = restart
    with fake_judge() as model:
        model.then(costing(1000, 16, scores(lambda text: len(text) / 1000)))
        judge = spec_pb2.JudgeModel(base_url=model.base_url, model="m", max_completion_tokens=16)
        # A question can take more than it does: enough for three, and for no fourth.
        ruler = spec_pb2.RulerSpec(judges=[judge], max_job_tokens=3 * 1016 + 1500)
        scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=ruler)
        job = await client.create(small_job(3, reward=spec_pb2.RewardSpec(scorers=[scorer])))
        failed = await client.state(job.id, pb.JOB_STATE_FAILED)
        assert len(model.requests) == 3
    assert failed.failure_reason == "JUDGE_BUDGET_SPENT"
    assert "have used 3048 tokens of 4548 (max_job_tokens)" in failed.failure_message
    (step,) = await client.steps(job.id)
    assert step.metrics["judge_tokens"] == 3048


async def test_jobs_queue_in_order_and_take_over_pool_and_trainer(
    fleet: Fleet, client: Client
) -> None:
    running: set[str] = set()
    order: list[str] = []

    async def watch(point: str, about: str) -> None:
        if point == "open":
            order.append(about)
        if point == "collect:begin":
            running.add(about.split("/")[0])
            states = [(await client.get(job)).state for job in jobs]
            assert states.count(pb.JOB_STATE_RUNNING) <= 1

    jobs: list[str] = []
    fleet.at = watch
    for i in range(3):
        jobs.append((await client.create(small_job(2), f"queued-{i}")).id)
    for job in jobs:
        await client.succeeded(job)
        await assert_every_step_once(fleet, client, job, 2)
    assert order == jobs
    assert running == set(jobs)


async def test_what_a_forgotten_job_left_behind_is_taken_back(fleet: Fleet, client: Client) -> None:
    """The first job's trainer could not be told that it ended."""
    first = await client.create(small_job(1), "first")

    async def break_close(point: str, about: str) -> None:
        if point == "close" and fleet.trainer.calls["close"] == 1:
            raise RuntimeError("the trainer could not hear it")

    fleet.at = break_close
    await client.succeeded(first.id)
    assert fleet.trainer.job == first.id
    second = await client.create(small_job(1), "second")
    await client.succeeded(second.id)
    assert fleet.inference.job == second.id


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


async def test_checkpoints_of_an_unknown_job_are_never_continued(fleet: Fleet) -> None:
    async with running_controller(fleet, "one") as client:
        await client.create(small_job(1), "mine")
        await client.succeeded("mine")
    async with running_controller(fleet, "another-database") as client:
        with pytest.raises(AlreadyExistsError) as raised:
            await client.create(small_job(1), "mine")
    assert raised.value.reason == "MODEL_EXISTS"


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


@pytest.mark.full
async def test_steps_that_train_nothing_are_told_of_once_with_what_to_change(
    fleet: Fleet, client: Client
) -> None:
    fleet.trainer.skips = "zero_variance"
    job = await client.create(small_job(4))
    await client.succeeded(job.id)
    (event,) = [e for e in await client.events(job.id) if e.type == pb.EVENT_TYPE_WARNING]
    # Three steps of three groups are too few to tell.
    assert event.step == 4
    assert "in 100 % of the groups of the last 4 steps" in event.message
    assert "raise rollout.group_size" in event.message
    assert event.message.endswith("(NO_VARIANCE)")
