"""Jobs that start from another one's checkpoint: a real controller and registry."""

from __future__ import annotations

import pytest
from podium.core.errors import InvalidArgumentError
from podium.types.v1 import spec_pb2
from support.controlled import Client, small_job
from support.controlled_fixtures import client, fleet, registry
from support.fleet import Fleet
from support.sessions import batch, client_job, submit

__all__ = ["client", "fleet", "registry"]


async def test_a_fork_goes_on_from_the_checkpoint(fleet: Fleet, client: Client) -> None:
    source = await client.create(small_job(2))
    await client.succeeded(source.id)
    evaluation = spec_pb2.EvaluationSpec()
    job = await client.create(
        small_job(4, fork=spec_pb2.ForkSpec(model=source.id), evaluation=evaluation)
    )
    assert job.spec.fork.version == 2
    assert job.completed_steps == 2
    await client.succeeded(job.id)
    assert [step.number for step in await client.steps(job.id)] == [3, 4]
    assert [e.version for e in await client.evaluations(job.id)] == [2, 4]
    versions = {v.manifest.version: v.manifest for v in await fleet.client.list_versions(job.id)}
    assert set(versions) == {2, 3, 4}
    (parent,) = versions[2].parents
    assert (parent.model, parent.version) == (source.id, 2)
    assert await fleet.weights_of(job.id, 2) == await fleet.weights_of(source.id, 2)
    assert fleet.trainer.ages[3] == [2] * len(fleet.trainer.ages[3])


async def test_a_client_may_fork_its_own_model_and_go_another_way(
    fleet: Fleet, client: Client
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
    assert await fleet.weights_of(job.id, 1) == await fleet.weights_of(source.id, 1)
    assert await fleet.weights_of(job.id, 2) != await fleet.weights_of(source.id, 2)


async def test_what_cannot_be_forked_is_refused(client: Client) -> None:
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
