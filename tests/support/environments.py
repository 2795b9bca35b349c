"""What every environment must keep to, held against all of its scenarios."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from podium.environments import Environment, Observation, Scenario, StepResult
from podium.environments.serving.convert import observation_to_pb, struct
from podium.environments.types import assistant


async def check_contract(
    kind: type[Environment],
    lines: Sequence[str],
    *,
    config: Mapping[str, Any] | None = None,
    every: int = 1,
) -> None:
    """Says `lines` in every scenario, or every so many-th, and asserts the contract of S4.

    Finite rewards and metrics, real bools, plain JSON, something to answer
    until the end, and the same episode again for the same seed.
    """
    ids = []
    for split in kind.splits:
        scenarios = kind(config).scenarios(split)
        assert scenarios
        assert list(scenarios) == list(kind(config).scenarios(split))
        for scenario in scenarios[::every]:
            assert scenario.split == split
            struct(scenario.data)
            first, results = await _say(kind(config), scenario, lines)
            assert first.messages
            _check_observation(first)
            for result in results:
                _check_result(result)
            assert (first, results) == await _say(kind(config), scenario, lines)
        ids += [scenario.id for scenario in scenarios]
    assert len(set(ids)) == len(ids)


async def _say(
    environment: Environment, scenario: Scenario, lines: Sequence[str]
) -> tuple[Observation, list[StepResult]]:
    try:
        first = await environment.reset(scenario, seed=1)
        results: list[StepResult] = []
        for line in lines:
            results.append(await environment.step(assistant(line)))
            if results[-1].terminated or results[-1].truncated:
                break
        return first, results
    finally:
        await environment.close()


def _check_result(result: StepResult) -> None:
    assert math.isfinite(result.reward)
    assert type(result.terminated) is bool
    assert type(result.truncated) is bool
    assert all(math.isfinite(value) for value in result.metrics.values())
    struct(result.info)
    _check_observation(result.observation)
    assert result.observation.messages or result.terminated or result.truncated


def _check_observation(observation: Observation) -> None:
    # Plain types only: numpy's integers, for one, fail here.
    json.dumps(dict(observation.state), allow_nan=False)
    observation_to_pb(observation)
    assert all(message.content.strip() for message in observation.messages)
    assert [message.role for message in observation.messages][-1:] in ([], ["user"])
