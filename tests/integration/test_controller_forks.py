"""Jobs that start from another one's checkpoint: a real controller and registry."""

from __future__ import annotations

from podium.types.v1 import spec_pb2
from support.controlled import Client, small_job
from support.controlled_fixtures import client, fleet, registry
from support.fleet import Fleet

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
