"""Episodes in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podium.core.outside import clean, struct_of
from podium.environments import Agent, Environment, Played, Scenario, play
from podium.environments.serving.convert import message_to_pb, tool_to_pb
from podium.sdk.evaluation.attempts import Attempt
from podium.sdk.evaluation.retries import NotAnsweredError
from podium.types.v1 import trajectory_pb2

Recorded = Callable[[trajectory_pb2.Trajectory], None]


async def run_local(
    environment: type[Environment],
    config: Mapping[str, Any],
    scenarios: Sequence[Scenario],
    agent: Callable[[int], Agent],
    *,
    attempts: int = 1,
    seed: int = 0,
    max_turns: int = 10,
    concurrency: int = 8,
    done: Callable[[Attempt], None] = lambda attempt: None,
    recorded: Recorded | None = None,
    known: Mapping[tuple[str, int], Attempt] | None = None,
) -> list[Attempt]:
    """Plays every scenario `attempts` times with a fresh agent each.

    What the environment or the agent raises fails that attempt alone; NotAnsweredError makes it
    one that does not count.

    Args:
        config: the environment's options.
        agent: made from the attempt's seed.
        seed: the environment's, in every attempt; an attempt's agent gets it plus its number.
        max_turns: after which an episode is cut.
        concurrency: episodes at once.
        done: told of each attempt as it ends.
        recorded: given what was seen and said in each attempt that counts, just before.
        known: by scenario and number, attempts of an earlier call, which are not played again.
    """
    slots = asyncio.Semaphore(concurrency)

    async def one(scenario: Scenario, number: int) -> Attempt:
        if before := (known or {}).get((scenario.id, number)):
            return before
        async with slots:
            record = _begun(scenario, number) if recorded else None
            attempt = await _play(
                environment, config, scenario, agent, number, seed, max_turns, record
            )
        if recorded and record is not None and not attempt.unanswered:
            recorded(record)
        done(attempt)
        return attempt

    return await asyncio.gather(
        *(one(scenario, number) for scenario in scenarios for number in range(attempts))
    )


async def _play(
    environment: type[Environment],
    config: Mapping[str, Any],
    scenario: Scenario,
    agent: Callable[[int], Agent],
    number: int,
    seed: int,
    max_turns: int,
    record: trajectory_pb2.Trajectory | None,
) -> Attempt:
    try:
        played = await play(
            environment(config),
            scenario,
            agent(seed + number),
            seed=seed,
            max_turns=max_turns,
        )
        if record is not None:
            _tell(record, played)
    except Exception as error:
        if record is not None:
            record.stop_reason = trajectory_pb2.STOP_REASON_FAILED
            record.failure.type = clean(type(error).__name__)
            record.failure.message = clean(str(error))
        return Attempt(
            scenario.id,
            number,
            0.0,
            False,
            0,
            failure=clean(f"{type(error).__name__}: {error}"),
            unanswered=isinstance(error, NotAnsweredError),
        )
    metrics = {clean(name): value for name, value in played.metrics.items()}
    return Attempt(scenario.id, number, played.reward, played.terminated, played.turns, metrics)


def _begun(scenario: Scenario, number: int) -> trajectory_pb2.Trajectory:
    name = clean(scenario.id)
    group = f"eval/{name}"
    return trajectory_pb2.Trajectory(
        id=f"{group}/t{number}", group_id=group, scenario_id=name, attempt=number
    )


def _tell(record: trajectory_pb2.Trajectory, played: Played) -> None:
    if played.terminated:
        record.stop_reason = trajectory_pb2.STOP_REASON_TERMINATED
    elif played.truncated:
        record.stop_reason = trajectory_pb2.STOP_REASON_TRUNCATED
    else:
        record.stop_reason = trajectory_pb2.STOP_REASON_MAX_TURNS
    # What scorers may read besides the conversation.
    record.environment_reward = played.reward
    for name, value in played.metrics.items():
        if isinstance(value, int | float):
            record.metrics[clean(name)] = value
    record.metrics["turns"] = played.turns
    record.info.CopyFrom(struct_of(played.info))
    record.histories.add(
        messages=map(message_to_pb, played.messages), tools=map(tool_to_pb, played.tools)
    )
