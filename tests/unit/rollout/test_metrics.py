"""Metrics: jobs cannot make series by their labels, and rewards have a mean."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import AsyncIterator

import pytest
from podium.environment.v1 import environment_service_pb2_grpc as environment_grpc
from podium.environments.serving.servicer import EnvironmentServicer
from podium.kit.rpc import Server, ServerSettings
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain import metrics
from podium_rollout.domain.episode import Episode
from prometheus_client import REGISTRY
from support.guess_environment import Guess
from support.rollout import PolicyDouble, group_request


def series() -> set[tuple[str, ...]]:
    """Every series of the rollout service that is labelled with an environment."""
    return {
        (sample.name, *sorted(sample.labels.values()))
        for family in REGISTRY.collect()
        if family.name.startswith("podium_rollout_")
        for sample in family.samples
        if "environment" in sample.labels
    }


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """An environment that a job serves itself."""
    servicer = EnvironmentServicer(Guess)
    server = Server("environment", ServerSettings(port=0, health_port=0, metrics_port=0))
    server.add(
        environment_grpc.add_EnvironmentServiceServicer_to_server,
        servicer,
        "podium.environment.v1.EnvironmentService",
    )
    await server.start()
    yield f"127.0.0.1:{server.port}"
    await server.stop(0)
    await servicer.close()


async def play(name: str, address: str = "") -> None:
    environments = Environments()
    try:
        request = group_request()
        request.environment.name, request.environment.address = name, address
        await Episode(request, 0, environments, PolicyDouble()).run()
    finally:
        await environments.close()


async def test_the_names_of_sixty_environments_of_jobs_make_one_label(address: str) -> None:
    await play("mine-0", address)
    before = series()
    for number in range(1, 60):
        await play(f"mine-{number}", address)
    # A built-in name in front of a job's own server is that of the job, too.
    await play("email_search", address)
    assert series() == before
    labels = {each for name in before for each in name[1:]}
    assert "other" in labels
    assert not {each for each in labels if each.startswith("mine")}


async def test_a_built_in_environment_has_its_name() -> None:
    await play("guess")
    assert any("guess" in each for each in series())


async def test_an_episode_takes_no_less_than_nothing_when_the_clock_is_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hours = itertools.count(500_000, -1)
    monkeypatch.setattr(time, "time", lambda: 3600.0 * next(hours))
    name, labels = "podium_rollout_episode_seconds_sum", {"environment": "guess"}
    before = REGISTRY.get_sample_value(name, labels) or 0.0
    environments = Environments()
    (trajectory,) = await Episode(group_request(), 0, environments, PolicyDouble()).run()
    await environments.close()
    took = trajectory.end_time.ToNanoseconds() - trajectory.start_time.ToNanoseconds()
    assert 0 <= took < 3600e9
    assert 0 <= (REGISTRY.get_sample_value(name, labels) or 0.0) - before < 3600


def scraped(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"podium_rollout_environment_{name}", labels) or 0.0


@pytest.mark.parametrize(
    ("rewards", "mean"),
    [
        ((1.0, 0.0), 0.5),
        ((-1.0, 0.5, -0.25), -0.25),
        ((-2.0,), -2.0),
        # Sums that overflowed are no episode's reward, and would be in every mean after them.
        ((math.inf, 0.5, -math.inf, math.nan), 0.5),
    ],
)
def test_a_mean_of_rewards_may_be_below_zero(rewards: tuple[float, ...], mean: float) -> None:
    label = f"mean of {rewards}"
    for reward in rewards:
        metrics.rewarded(label, reward)
    above, below = (
        scraped("rewards_total", environment=label, sign=s) for s in ("positive", "negative")
    )
    assert (above - below) / scraped("reward_count", environment=label) == pytest.approx(mean)
