"""What a job is when it is taken: the length of its rows, and what it forks; on fakes."""

from __future__ import annotations

import pytest
from podium.core.errors import InvalidArgumentError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from support.controlled import small_job
from support.memory_fixtures import client, fleet
from support.memory_fleet import MemoryClient, MemoryFleet, memory_controller
from support.sessions import batch, client_job, submit

__all__ = ["client", "fleet"]


def job_of(rows: int | None = None, answer: int = 128) -> spec_pb2.JobSpec:
    spec = small_job(1)
    spec.rollout.sampling.max_tokens = answer
    if rows is not None:
        spec.training.max_row_tokens = rows
    return spec


async def warnings(client: MemoryClient, job_id: str) -> list[pb.Event]:
    return [e for e in await client.events(job_id) if e.type == pb.EVENT_TYPE_WARNING]


@pytest.mark.parametrize(("windows", "expected"), [((2048,), 4096), ((16384, 2048), 16384)])
async def test_the_length_of_rows_follows_the_widest_context_and_is_recorded(
    fleet: MemoryFleet, windows: tuple[int, ...], expected: int
) -> None:
    fleet.inference.window = windows[0]
    for number, window in enumerate(windows[1:]):
        fleet.add_pool(f"narrow-{number}").window = window
    async with memory_controller(fleet) as client:
        draft = await client.create(job_of(), validate_only=True)
        assert draft.spec.training.max_row_tokens == expected
        made = await client.create(job_of())
        assert (await client.succeeded(made.id)).spec.training.max_row_tokens == expected
        assert await warnings(client, made.id) == []


async def test_rows_that_cannot_hold_one_answer_are_refused(client: MemoryClient) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        await client.create(job_of(rows=511, answer=512))
    (violation,) = raised.value.violations
    assert violation.field == "job.spec.training.max_row_tokens"
    assert "got 511; allowed are numbers from 512" in violation.description
    assert (await client.create(job_of(rows=512, answer=512), validate_only=True)).id


async def test_what_cannot_be_forked_is_refused(client: MemoryClient) -> None:
    source = await client.create(small_job(1))
    await client.succeeded(source.id)
    for fork, steps, field in (
        (spec_pb2.ForkSpec(model="nobody"), 4, "job.spec.fork"),
        (spec_pb2.ForkSpec(model=source.id, version=9), 4, "job.spec.fork"),
        (spec_pb2.ForkSpec(model=source.id), 1, "job.spec.training.steps"),
    ):
        with pytest.raises(InvalidArgumentError) as refused:
            await client.create(small_job(steps, fork=fork))
        assert [violation.field for violation in refused.value.violations] == [field]


async def test_a_client_may_fork_its_own_model_and_go_another_way(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    source = await client.create(client_job(10))
    for version in (0, 1):
        await submit(client, source.id, batch(source.id, version))
        await client.until(source.id, lambda job, v=version: job.completed_steps > v)
    await client.cancel(source.id)
    fork = spec_pb2.ForkSpec(model=source.id, version=1)
    job = await client.create(client_job(2, fork=fork))
    assert await submit(client, job.id, batch(job.id, 1)) == 2
    await client.succeeded(job.id)
    own, other = fleet.registry.models[job.id], fleet.registry.models[source.id]
    assert own[1].weights == other[1].weights
    assert own[2].weights != other[2].weights
