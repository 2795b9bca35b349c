"""A job of several environments: a real controller, the services that it drives as doubles."""

from __future__ import annotations

import pytest
from podium.types.v1 import spec_pb2
from support.controlled import ATTEMPTS, GROUPS, Client, small_job
from support.controlled_fixtures import client, fleet, registry
from support.fleet import Fleet
from support.fleet_doubles import HELDOUT_SCENARIOS

__all__ = ["client", "fleet", "registry"]


async def test_several_environments_train_and_are_measured(fleet: Fleet, client: Client) -> None:
    spec = small_job(4)
    one = spec_pb2.WeightedEnvironment(environment=spec.environment, name="one", weight=GROUPS)
    two = spec_pb2.WeightedEnvironment(environment=spec.environment, name="two", from_step=3)
    spec.ClearField("environment")
    spec.environments.extend([one, two])
    two.environment.config.fields["second"].bool_value = True
    spec.environments[1].CopyFrom(two)
    spec.evaluation.SetInParent()
    job = await client.create(spec)
    await client.succeeded(job.id)
    assert job.id.startswith("one-two-")

    def is_second(request) -> bool:
        return request.environment.config.fields["second"].bool_value

    training = [r for r in fleet.rollout.requests if "/s" in r.group_id]
    assert sum(is_second(r) and r.step < 3 for r in training) == 0
    second = {r.group_id for r in training if is_second(r)}
    for trajectory in await client.trajectories(job.id, step=4):
        assert trajectory.environment == ("two" if trajectory.group_id in second else "one")
    for step in await client.steps(job.id):
        own = [r for r in training if r.step == step.number]
        told = step.metrics.get("env/two/trajectories", 0)
        assert told == ATTEMPTS * sum(map(is_second, own))
        assert step.metrics["env/one/trajectories"] == ATTEMPTS * len(own) - told
        assert "env/one/reward_mean" in step.metrics
    (last,) = [e for e in await client.evaluations(job.id) if e.version == 4]
    assert last.episodes == 2 * HELDOUT_SCENARIOS
    rewards = [last.metrics[f"env/{name}/reward"] for name in ("one", "two")]
    assert last.metrics["reward"] == pytest.approx(sum(rewards) / 2)
