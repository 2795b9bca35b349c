"""Rows S12 and S41 of the tutorial: what is kept of a training, and which of it is the best."""

from __future__ import annotations

from podium.core.errors import NotFoundError
from podium.types.v1 import spec_pb2
from support.controlled import running_controller, small_job
from support.controlled_fixtures import fleet, registry
from support.fleet import Fleet

__all__ = ["fleet", "registry"]


async def test_s12_every_checkpoint_stays_that_the_rule_keeps_and_every_step_has_loss_kl_and_reward(
    fleet: Fleet,
) -> None:
    async with running_controller(fleet) as client:
        job = await client.create(
            small_job(4, retention=spec_pb2.RetentionSpec(keep_last=5, keep_best=0))
        )
        await client.succeeded(job.id)
        steps = await client.steps(job.id)
    kept = {version.manifest.version for version in await fleet.client.list_versions(job.id)}
    assert kept == {0, 1, 2, 3, 4}
    assert len(steps) == 4
    for step in steps:
        assert {"reward_mean", "train/loss", "train/kl_reference"} <= set(step.metrics)


async def test_s12_without_a_rule_of_its_own_a_job_keeps_the_newest(fleet: Fleet) -> None:
    async with running_controller(fleet) as client:
        job = await client.create(small_job(5))
        await client.succeeded(job.id)
    kept = {version.manifest.version for version in await fleet.client.list_versions(job.id)}
    assert kept == {3, 4, 5}


async def test_s41_the_best_checkpoint_is_the_one_with_most_reward_and_never_gets_worse(
    fleet: Fleet,
) -> None:
    """Versions 1 to 4 play as if they were 4, 1, 9 and 2."""
    skill = {0: 0, 1: 4, 2: 1, 3: 9, 4: 2}
    fleet.rollout.version_of = lambda group, version: (
        skill[version] if "-sampled/" in group else version
    )
    seen: dict[int, int] = {}

    async def look(point: str, about: str) -> None:
        if point == "collect:begin" and about.endswith("-sampled/g0"):
            measured = int(about.rpartition("/v")[2].removesuffix("-sampled/g0"))
            try:
                seen[measured] = (await fleet.client.get_version(job_id, "best")).manifest.version
            except NotFoundError:
                seen[measured] = -1

    fleet.at, job_id = look, "merge"
    evaluation = spec_pb2.EvaluationSpec(every_steps=1, samples=32, best_metric="reward")
    async with running_controller(fleet) as client:
        await client.create(small_job(4, evaluation=evaluation), job_id)
        await client.succeeded(job_id)
        rewards = {e.version: e.metrics["reward"] for e in await client.evaluations(job_id)}
    assert sorted(rewards, key=lambda version: rewards[version]) == [0, 2, 4, 1, 3]
    # What was the best before each evaluation: the weights that were measured, never worse ones.
    assert seen == {0: -1, 1: 0, 2: 1, 3: 1, 4: 3}
    best = await fleet.client.get_version(job_id, "best")
    assert best.manifest.version == 3
    assert best.evaluation_metrics["reward"] == max(rewards.values())
