"""Rows S14 to S17 and S20 of the tutorial: many workers, their deaths, and what one sees of them.

A worker is a replica of the rollout service, here a double over real gRPC, and what deals episodes
out is the controller's channel to all of them.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter

import grpc
import pytest
from podium.cli.views import JOB
from podium.core.errors import UnavailableError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from support.controlled import assert_every_step_once, running_controller, small_job
from support.controlled_fixtures import fleet, registry
from support.fleet import Fleet
from support.fleet_doubles import RolloutDouble
from support.full import full
from support.waiting import eventually

__all__ = ["fleet", "registry"]


JOB_EPISODES = dict(JOB.columns)["episodes"]


def wide_job(groups: int, steps: int = 2) -> spec_pb2.JobSpec:
    """So many groups a step, all at once."""
    return small_job(
        steps,
        rollout=spec_pb2.RolloutSpec(
            group_size=4, groups_per_step=groups, max_concurrent_groups=groups
        ),
    )


def collected(replicas: list[RolloutDouble]) -> Counter[str]:
    """How often each group was streamed to its end, by anybody."""
    return sum((replica.collected for replica in replicas), Counter())


@pytest.mark.parametrize(
    ("groups", "workers", "shares"),
    [(10, 3, [3, 3, 4]), full(8, 4, [2, 2, 2, 2]), full(2, 4, [0, 0, 1, 1])],
)
async def test_s14_groups_are_dealt_to_all_workers_and_none_is_lost(
    fleet: Fleet, groups: int, workers: int, shares: list[int]
) -> None:
    replicas = await fleet.add_rollouts(workers - 1)
    async with running_controller(fleet) as client:
        job = await client.create(wide_job(groups, steps=4))
        await client.succeeded(job.id)
    found = collected(replicas)
    assert found == {f"{job.id}/s{s}/g{g}": 1 for s in range(1, 5) for g in range(groups)}
    for step in (3, 4):
        # In the first steps some are still being connected to.
        took = [sum(f"/s{step}/" in group for group in r.collected) for r in replicas]
        assert sorted(took) == shares


async def test_s14_without_a_worker_the_job_waits_and_goes_on_with_the_first_that_comes(
    fleet: Fleet,
) -> None:
    replicas = await fleet.add_rollouts(1)
    hold = fleet.hold("collect:begin", "/s2/g0")
    async with running_controller(fleet) as client:
        job = await client.create(small_job())
        await hold.reached()
        # A group whose last word is still on its way when its worker dies is collected again.
        await client.until(job.id, lambda job: job.groups_collected == 2)
        await asyncio.gather(*(replica.kill() for replica in replicas))
        waiting = await client.until(job.id, lambda job: job.wait_reason == "ROLLOUT_LOST")
        assert waiting.state == pb.JOB_STATE_RUNNING
        assert waiting.wait_message
        await replicas[1].start()
        done = await client.succeeded(job.id)
        assert not done.wait_reason
        await assert_every_step_once(fleet, client, job.id, 3)
    assert collected(replicas) == {f"{job.id}/s{s}/g{g}": 1 for s in (1, 2, 3) for g in range(3)}


async def test_s14_a_job_submitted_without_a_worker_is_queued_and_not_dropped(
    fleet: Fleet,
) -> None:
    (worker,) = await fleet.add_rollouts(0)
    async with running_controller(fleet) as client:
        await worker.kill()
        evaluation = spec_pb2.EvaluationSpec(split="heldout", scenarios=2)
        job = await client.create(small_job(1, evaluation=evaluation))
        waiting = await client.until(job.id, lambda job: job.wait_reason == "ROLLOUT_LOST")
        assert waiting.wait_message == "rollout cannot be reached (connection refused)"
        # It keeps nobody from a trainer meanwhile.
        assert not fleet.trainer.calls
        with pytest.raises(UnavailableError, match="rollout cannot be reached"):
            await client.create(small_job(1), validate_only=True)
        await worker.start()
        done = await client.succeeded(job.id)
        assert not done.wait_reason
        await assert_every_step_once(fleet, client, job.id, 1)


@pytest.mark.parametrize(
    ("environment", "reason", "message"),
    [
        ({"name": "double", "split": "empty"}, "NO_SCENARIOS", "'double' has no .* 'empty'"),
        full({"name": "doubel"}, "NOT_FOUND", "of 'doubel'"),
    ],
)
async def test_s14_what_no_worker_could_check_is_told_when_one_has_come(
    fleet: Fleet, environment: dict[str, str], reason: str, message: str
) -> None:
    (worker,) = await fleet.add_rollouts(0)
    async with running_controller(fleet) as client:
        await worker.kill()
        spec = small_job(1, environment=spec_pb2.EnvironmentSpec(**environment))
        job = await client.create(spec)
        await client.until(job.id, lambda job: job.wait_reason == "ROLLOUT_LOST")
        await worker.start()
        failed = await client.state(job.id, pb.JOB_STATE_FAILED)
        assert failed.failure_reason == reason
        assert re.search(message, failed.failure_message)


async def test_a_job_whose_own_environment_is_away_is_refused(fleet: Fleet) -> None:
    away = spec_pb2.EnvironmentSpec(name="double")
    away.config["away"] = True
    async with running_controller(fleet) as client:
        with pytest.raises(UnavailableError, match="environment 'double' cannot be reached"):
            await client.create(small_job(1, environment=away))


@pytest.mark.parametrize("workers", [2, full(4)])
async def test_s16_s20_what_a_dead_worker_had_is_done_by_the_others_exactly_once(
    fleet: Fleet, workers: int
) -> None:
    replicas = await fleet.add_rollouts(workers - 1)
    hold = fleet.hold("collect:end", "/s2/g1")
    async with running_controller(fleet) as client:
        job = await client.create(small_job())
        await hold.reached()
        held = f"{job.id}/s2/g1"
        (dying,) = (r for r in replicas if held in [q.group_id for q in r.requests])
        others = [replica for replica in replicas if replica is not dying]
        await dying.kill()
        asked = len(dying.requests)
        await client.succeeded(job.id)
        await assert_every_step_once(fleet, client, job.id, 3)
    # It had streamed every attempt when it died; none of them counted.
    assert dying.collected[held] == 0
    assert sum(replica.collected[held] for replica in others) == 1
    assert len(dying.requests) == asked
    assert all(replica.collected for replica in others)


async def test_s17_the_status_of_a_job_is_right_while_its_workers_are_busy(fleet: Fleet) -> None:
    """Of 10 groups of 4 at most 3 run at once, at 3 workers; one is held back."""
    await fleet.add_rollouts(2)
    hold = fleet.hold("collect:begin", "/s1/g1")
    spec = wide_job(10, steps=1)
    spec.rollout.max_concurrent_groups = 3
    async with running_controller(fleet) as client:
        job = await client.create(spec)
        assert not job.HasField("episodes_running")
        await hold.reached()
        status = await client.until(job.id, lambda job: job.groups_collected == 9)
        assert (status.episodes_running, status.episodes_waiting) == (4, 0)
        assert status.phase == "collect"
        hold.release()
        done = await client.succeeded(job.id)
    assert not done.HasField("episodes_running")
    assert not done.HasField("groups_collected")


async def test_s17_episodes_that_no_worker_has_yet_are_counted_as_waiting(fleet: Fleet) -> None:
    spec = wide_job(10, steps=1)
    spec.rollout.max_concurrent_groups = 1
    hold = fleet.hold("collect:begin", "/s1/g2")
    async with running_controller(fleet) as client:
        job = await client.create(spec)
        await hold.reached()
        status = await client.until(job.id, lambda job: job.groups_collected == 2)
        assert (status.episodes_running, status.episodes_waiting) == (4, 28)
        assert JOB_EPISODES(status) == "4 running, 28 waiting, 2 of 10 groups collected"
        hold.release()
        await client.succeeded(job.id)


async def test_s15_every_message_of_the_tutorials_socket_is_a_call_that_arrives(
    fleet: Fleet,
) -> None:
    """train_episodes, update_model, episode_result, status_update and shutdown, by our names."""
    hold = fleet.hold("collect:begin", "/s3/g0")
    async with running_controller(fleet) as client:
        job = await client.create(small_job(steps=100))
        await hold.reached()
        watch = client.stub.WatchJob(pb.WatchJobRequest(job_id=job.id))
        told = [(await watch.read()).event.sequence for _ in range(3)]
        watch.cancel()
        await client.cancel(job.id)
        await client.state(job.id, pb.JOB_STATE_CANCELLED)
        results = await client.trajectories(job.id, step=1)
    assert fleet.rollout.requests[0].group_id.startswith(f"{job.id}/s1/")
    assert fleet.inference.loads[:3] == [(job.id, 0), (job.id, 1), (job.id, 2)]
    assert {each.id for each in results} == {
        f"{job.id}/s1/g{g}/t{t}" for g in range(3) for t in range(4)
    }
    assert told == [1, 2, 3]
    # What the worker is told is still on its way when the job has ended.
    await eventually(lambda: fleet.rollout.cancelled >= 1)
    assert fleet.trainer.calls["close"] == 1


async def test_s15_a_broken_message_does_not_end_the_connection(fleet: Fleet) -> None:
    async with running_controller(fleet) as client:
        get = client.channel.unary_unary("/podium.jobs.v1.JobService/GetJob")
        for junk in (b"\xff\xff\xff", b'{"type": "status"}', b"\x00" * 64):
            with pytest.raises(grpc.aio.AioRpcError):
                await get(junk, timeout=30)
        job = await client.create(small_job(steps=1))
        await client.succeeded(job.id)
