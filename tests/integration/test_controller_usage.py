"""What jobs use: a real controller and real gRPC; it dies, and nothing is lost or counted twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from podium.types.v1 import spec_pb2
from support.controlled import ATTEMPTS, GROUPS, Client, running_controller, small_job
from support.controlled_fixtures import fleet, registry
from support.fleet import Fleet
from support.processes import ControllerProcess

__all__ = ["fleet", "registry"]

# Of each of the fleet's episodes.
_PROMPT, _SAMPLED = 2, 3


async def usage(client: Client, **only: Any) -> list[pb.UsageRow]:
    """All rows, two a page."""
    request = pb.ListUsageRequest(page_size=2, **only)
    rows: list[pb.UsageRow] = []
    while True:
        with rpc_errors("controller"):
            response = await client.stub.ListUsage(request)
        assert len(response.rows) <= 2
        rows += response.rows
        request.page_token = response.next_page_token
        if not request.page_token:
            return rows


async def test_usage_is_told_by_job_by_project_and_by_time(fleet: Fleet, tmp_path: Path) -> None:
    limits = tmp_path / "projects.yaml"
    limits.write_text("one: {maxGpuHours: 9, maxJudgeCost: 8}\ntwo: {maxTotalGpuHours: 7}\n")
    changes = {"trainer_gpus": 2, "gpu_hour_price": 3600.0, "projects_file": limits}
    began, hour = Timestamp(), 3600
    began.GetCurrentTime()
    async with running_controller(fleet, **changes) as client:
        for job_id, project in (("a", "one"), ("b", "two"), ("c", "one")):
            await client.create(small_job(1, project=project), job_id)
            await client.succeeded(job_id)
        used = (await client.get("a")).usage
        assert used.prompt_tokens == GROUPS * ATTEMPTS * _PROMPT
        assert used.sampled_tokens == GROUPS * ATTEMPTS * _SAMPLED
        assert used.trainer_seconds > 0
        assert used.trainer_gpu_seconds == pytest.approx(2 * used.trainer_seconds)
        # A pool without GPUs.
        assert used.pool_seconds > 0
        assert used.pool_gpu_seconds == 0
        assert used.gpu_cost == pytest.approx(used.trainer_gpu_seconds)
        with rpc_errors("controller"):
            listed = await client.stub.ListJobs(pb.ListJobsRequest())
        assert {job.id: job.usage for job in listed.jobs}["a"] == used
        with rpc_errors("controller"):
            listed = await client.stub.ListJobs(pb.ListJobsRequest(project="one"))
        assert [job.id for job in listed.jobs] == ["c", "a"]

        rows = await usage(client)
        assert [(row.job_id, row.project) for row in rows] == [
            ("c", "one"),
            ("b", "two"),
            ("a", "one"),
        ]
        assert rows[2].usage == used
        assert [row.job_id for row in await usage(client, project="one")] == ["c", "a"]
        projects = await usage(client, by_project=True)
        assert [row.project for row in projects] == ["one", "two"]
        both = rows[0].usage.sampled_tokens + used.sampled_tokens
        assert projects[0].usage.sampled_tokens == both

        month, total = await budgets(client)
        assert (month.project, month.max_gpu_hours, month.max_judge_cost) == ("one", 9, 8)
        gpu_seconds = rows[0].usage.trainer_gpu_seconds + used.trainer_gpu_seconds
        assert month.gpu_hours == pytest.approx(gpu_seconds / 3600)
        assert (month.judge_cost, month.HasField("max_total_gpu_hours")) == (0, False)
        assert (total.project, total.max_total_gpu_hours) == ("two", 7)
        assert total.total_gpu_hours == total.gpu_hours > 0
        assert [each.project for each in await budgets(client, project="two")] == ["two"]
        # They are told with the first page alone.
        with rpc_errors("controller"):
            first = await client.stub.ListUsage(pb.ListUsageRequest(page_size=1))
        assert len(first.budgets) == 2
        token = first.next_page_token
        assert await budgets(client, page_size=1, page_token=token) == []

        long_ago, far = Timestamp(seconds=0), Timestamp(seconds=began.seconds + 2 * hour)
        assert len(await usage(client, start_time=began, end_time=far)) == 3
        assert await usage(client, start_time=far) == []
        assert await usage(client, end_time=long_ago) == []
        with pytest.raises(InvalidArgumentError, match="end_time"):
            await usage(client, start_time=far, end_time=began)
        with pytest.raises(InvalidArgumentError):
            await usage(client, page_token="another's")


async def test_tokens_are_the_same_though_the_controller_dies_on_the_way(fleet: Fleet) -> None:
    process = ControllerProcess(fleet)
    await process.start()
    client = Client(process.address)
    try:
        hold = fleet.hold("save:published", "2")
        await client.create(small_job(2), "job")
        await hold.reached()
        before = (await client.get("job")).usage
        assert before.sampled_tokens == 2 * GROUPS * ATTEMPTS * _SAMPLED
        process.kill()
        await process.start()
        hold.release()
        await client.succeeded("job")
        after = (await client.get("job")).usage
        assert after.sampled_tokens == before.sampled_tokens
        assert after.prompt_tokens == before.prompt_tokens == 2 * GROUPS * ATTEMPTS * _PROMPT
        assert after.trainer_seconds >= before.trainer_seconds
    finally:
        await client.channel.close()
        process.kill()


async def test_a_job_that_has_used_its_budget_pauses_and_goes_on_with_a_greater_one(
    fleet: Fleet,
) -> None:
    async with running_controller(fleet) as client:
        a_step = GROUPS * ATTEMPTS * _SAMPLED
        budget = spec_pb2.BudgetSpec(max_sampled_tokens=2 * a_step)
        await client.create(small_job(3, budget=budget), "frugal")
        paused = await client.state("frugal", pb.JOB_STATE_PAUSED)
        assert paused.completed_steps == 2
        assert paused.wait_reason == "BUDGET_EXHAUSTED"
        assert f"budget.max_sampled_tokens is {2 * a_step}" in paused.wait_message
        assert (fleet.trainer.job, fleet.inference.job) == ("", "")
        with pytest.raises(FailedPreconditionError, match="greater budget") as refused:
            await client.resume("frugal")
        assert refused.value.reason == "BUDGET_EXHAUSTED"
        wrong = spec_pb2.BudgetSpec(max_judge_cost=1)
        for each in (budget, wrong, spec_pb2.BudgetSpec(max_sampled_tokens=0)):
            with pytest.raises((FailedPreconditionError, InvalidArgumentError)):
                await resume(client, each)
        resumed = await resume(client, spec_pb2.BudgetSpec(max_sampled_tokens=3 * a_step))
        assert resumed.spec.budget.max_sampled_tokens == 3 * a_step
        done = await client.succeeded("frugal")
        # What ends with the budget has not been stopped by it.
        assert done.usage.sampled_tokens == 3 * a_step


async def budgets(client: Client, **fields: Any) -> list[pb.ProjectBudget]:
    with rpc_errors("controller"):
        return list((await client.stub.ListUsage(pb.ListUsageRequest(**fields))).budgets)


async def resume(client: Client, budget: spec_pb2.BudgetSpec) -> pb.Job:
    with rpc_errors("controller"):
        request = pb.ResumeJobRequest(job_id="frugal", budget=budget)
        return (await client.stub.ResumeJob(request)).job


async def test_trajectories_of_an_ended_job_make_room_and_are_told_of(fleet: Fleet) -> None:
    async with running_controller(fleet) as client:
        await client.create(small_job(2), "roomy")
        done = await client.succeeded("roomy")
        steps = await client.steps("roomy")
        assert len(await client.trajectories("roomy")) == 2 * GROUPS * ATTEMPTS
    # The next controller looks as soon as it leads.
    async with running_controller(fleet, trajectory_store_max_bytes=1) as client:
        request = pb.ListTrajectoriesRequest(job_id="roomy")

        async with asyncio.timeout(60):
            while True:
                with rpc_errors("controller"):
                    response = await client.stub.ListTrajectories(request)
                # What is not there is told of, at each moment.
                shown = {each.group_id for each in response.trajectories}
                told = sum(each.groups for each in response.deleted)
                assert len(shown) + told >= 2 * GROUPS
                if not shown:
                    break
                await asyncio.sleep(0.05)
        (gone,) = response.deleted
        assert (gone.first_step, gone.last_step, gone.mode) == (1, 2, "")
        assert await client.steps("roomy") == steps
        assert (await client.get("roomy")).usage == done.usage
