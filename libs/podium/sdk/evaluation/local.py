"""Episodes in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podium.environments import Agent, Environment, Scenario, play
from podium.sdk.evaluation.attempts import Attempt
from podium.sdk.evaluation.retries import NotAnsweredError


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
        known: by scenario and number, attempts of an earlier call, which are not played again.
    """
    slots = asyncio.Semaphore(concurrency)

    async def one(scenario: Scenario, number: int) -> Attempt:
        if before := (known or {}).get((scenario.id, number)):
            return before
        async with slots:
            attempt = await _play(environment, config, scenario, agent, number, seed, max_turns)
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
) -> Attempt:
    try:
        played = await play(
            environment(config),
            scenario,
            agent(seed + number),
            seed=seed,
            max_turns=max_turns,
        )
    except Exception as error:
        return Attempt(
            scenario.id,
            number,
            0.0,
            False,
            0,
            failure=f"{type(error).__name__}: {error}",
            unanswered=isinstance(error, NotAnsweredError),
        )
    return Attempt(
        scenario.id, number, played.reward, played.terminated, played.turns, played.metrics
    )
