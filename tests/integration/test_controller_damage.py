"""A job whose newest version is damaged goes on from the newest whole one, every step once.

Registry and controller are the real ones; the weights of the trainer's double are a digest of
all that they were trained on, so that a step left out or taken twice shows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from support.controlled import Client, assert_every_step_once, running_controller, small_job
from support.controlled_fixtures import fleet, registry
from support.fleet import Fleet
from support.full import full
from support.processes import RegistryProcess

__all__ = ["fleet", "registry"]

STEPS = 4
KEPT = {"retention": spec_pb2.RetentionSpec(keep_last=10)}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


async def damage(
    fleet: Fleet, registry: RegistryProcess, job: str, version: int, change: Callable[[Path], None]
) -> None:
    """Its weights, and nothing else."""
    manifest = (await fleet.client.get_version(job, version)).manifest
    (digest,) = (file.digest for file in manifest.files if file.path.endswith(".safetensors"))
    change(registry.object_of(digest))


async def lose_trainer(fleet: Fleet) -> None:
    await fleet.trainer.kill()
    await fleet.trainer.start()


async def warnings(client: Client, job: str) -> list[str]:
    return [e.message for e in await client.events(job) if e.type == pb.EVENT_TYPE_WARNING]


@pytest.mark.parametrize(
    ("versions", "change"), [((3,), flip), full((3, 2), flip), full((3, 2, 1, 0), Path.unlink)]
)
async def test_a_job_goes_on_from_the_newest_whole_version_and_mends_the_others(
    fleet: Fleet,
    registry: RegistryProcess,
    change: Callable[[Path], None],
    versions: tuple[int, ...],
) -> None:
    async with running_controller(fleet) as client:
        hold = fleet.hold("step:begin", "4")
        job = await client.create(small_job(STEPS, **KEPT))
        await hold.reached()
        for version in versions:
            await damage(fleet, registry, job.id, version, change)
        await lose_trainer(fleet)
        hold.release()
        await client.succeeded(job.id)
        # Nothing is counted, collected or trained into the weights twice.
        await assert_every_step_once(fleet, client, job.id, STEPS)
        assert set(fleet.rollout.collected.values()) == {1}
        told = [text for text in await warnings(client, job.id) if "damaged" in text]
        base = "the beginning" if 0 in versions else f"version {min(versions) - 1}"
        assert any("version 3 is damaged (blob sha256:" in text for text in told)
        assert f"goes on from {base}" in told[-1]
        for version in range(STEPS + 1):
            await fleet.weights_of(job.id, version)
