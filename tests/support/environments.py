"""What every environment must keep to, held against all of its scenarios."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from podium.environments import Environment, Observation, Scenario
from podium.environments.convert import message_to_pb, scenario_to_pb, struct
from podium.environments.session import LocalSession
from podium.environments.types import assistant
from podium.types.v1 import trajectory_pb2


async def transcript(
    kind: type[Environment],
    scenario: Scenario,
    lines: Sequence[str],
    *,
    seed: int = 1,
    config: Mapping[str, Any] | None = None,
) -> list[bytes]:
    """All that an episode answers to given lines until it ends, as its service would send it."""
    session = LocalSession(kind(config))
    first = await session.reset(scenario_to_pb(scenario, scenario.split), seed)
    sent = [first.SerializeToString(deterministic=True)]
    for line in lines:
        result = await session.step(message_to_pb(assistant(line)))
        sent.append(result.SerializeToString(deterministic=True))
        if result.terminated or result.truncated:
            break
    await session.close()
    return sent


async def check_contract(
    kind: type[Environment],
    lines: Sequence[str],
    *,
    config: Mapping[str, Any] | None = None,
) -> None:
    """Plays `lines` in every scenario and asserts the contract of S4.

    Finite rewards and metrics, real bools, JSON, scenarios that survive the
    wire, and the same episode again for the same seed.
    """
    for split in kind.splits:
        scenarios = kind(config).scenarios(split)
        assert scenarios
        assert [s.split for s in scenarios] == [split] * len(scenarios)
        assert list(scenarios) == list(kind(config).scenarios(split))
        for scenario in scenarios:
            struct(scenario.data)
            environment = kind(config)
            observation = await environment.reset(scenario, 1)
            assert observation.messages
            assert observation.messages[-1].role == "user"
            _check_observation(observation)
            for line in lines:
                result = await environment.step(assistant(line))
                assert math.isfinite(result.reward)
                assert type(result.terminated) is bool
                assert type(result.truncated) is bool
                assert all(math.isfinite(value) for value in result.metrics.values())
                json.dumps(dict(result.info), allow_nan=False)
                _check_observation(result.observation)
                if result.terminated:
                    break
                assert result.observation.messages
            await environment.close()
            once = await transcript(kind, scenario, lines, config=config)
            assert once == await transcript(kind, scenario, lines, config=config)
    ids = [s.id for split in kind.splits for s in kind(config).scenarios(split)]
    assert len(set(ids)) == len(ids)


def _check_observation(observation: Observation) -> None:
    # Plain types only: numpy's integers, for one, fail here.
    json.dumps(dict(observation.state), allow_nan=False)
    for message in observation.messages:
        assert isinstance(message_to_pb(message), trajectory_pb2.Message)
        assert message.content.strip()
