"""Which phase a job is in, and that its seconds are counted under that name."""

from __future__ import annotations

from prometheus_client import REGISTRY
from support.controlled import Client, small_job
from support.controlled_fixtures import client, fleet, registry
from support.fleet import Fleet
from support.hold import Hold

__all__ = ["client", "fleet", "registry"]


def times(phase: str) -> float:
    """How often the phase has been measured in this process."""
    name = "podium_controller_step_duration_seconds_count"
    return REGISTRY.get_sample_value(name, {"phase": phase}) or 0.0


async def test_opening_the_trainer_is_a_phase_of_its_own(fleet: Fleet, client: Client) -> None:
    opening, saving = Hold("open", ""), Hold("save:begin", "0")

    async def at(point: str, about: str) -> None:
        await opening(point, about)
        await saving(point, about)

    fleet.at = at
    opened, published = times("open"), times("publish")
    job = await client.create(small_job(1))
    await opening.reached()
    assert (await client.get(job.id)).phase == "open"
    opening.release()
    await saving.reached()
    assert (await client.get(job.id)).phase == "publish"
    assert (times("open"), times("publish")) == (opened + 1, published)
    saving.release()
    await client.succeeded(job.id)
    assert (times("open"), times("publish")) == (opened + 1, published + 2)


async def test_a_trainer_that_is_opened_again_after_a_loss_is_measured_too(
    fleet: Fleet, client: Client
) -> None:
    hold = fleet.hold("step:begin", "1")
    job = await client.create(small_job(1))
    await hold.reached()
    opened = times("open")
    await fleet.trainer.kill()
    await fleet.trainer.start()
    await client.succeeded(job.id)
    assert times("open") == opened + 1
