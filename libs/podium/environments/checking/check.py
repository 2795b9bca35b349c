"""The whole check: what is wrong with a class, its scenarios and its episodes."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from podium.environments.agent import Agent
from podium.environments.base import Environment
from podium.environments.checking.episodes import (
    differing,
    ending_findings,
    failure_findings,
    message_findings,
    reward_findings,
    time_findings,
)
from podium.environments.checking.findings import Finding, Report
from podium.environments.checking.guesser import ODD, Guesser
from podium.environments.checking.plays import SEED, Bounds, Play, Stage
from podium.environments.checking.scenarios import class_findings, listed
from podium.environments.types import Scenario


async def check(
    kind: type[Environment],
    config: Mapping[str, Any] | None = None,
    bounds: Bounds = Bounds(),  # noqa: B008
    *,
    clock: Callable[[], float] = time.monotonic,
    begin: Callable[[str], None] = lambda what: None,
) -> Report:
    """Plays an environment without a model and says what is wrong with it.

    It is played by guesses, by replies as models write them now and then (empty, long, no JSON),
    and by the baselines that the class names; each scenario begins twice and one episode is
    repeated word for word, to see that all that is random comes from the seed.

    Args:
        config: the environment's options.
        clock: seconds, for what is told of slow steps.
        begin: told `reset`, `step`, … before each call of the environment and "" after it.

    Nothing that the environment raises is raised; it is a finding.
    """
    options = dict(config or {})
    folder = _folder(kind)
    findings = list(class_findings(kind))
    if findings and findings[0].level == "error":
        return Report(getattr(kind, "name", "") or kind.__name__, tuple(findings))
    scenarios, wrong = listed(kind, options, folder)
    findings += wrong
    stage = Stage(kind, options, bounds, clock, begin)
    guessed, coached, differences = [], [], []
    for split, every in scenarios.items():
        for scenario in [each for each in every if isinstance(each.id, str)][: bounds.scenarios]:
            plays = await _guesses(stage, scenario, split)
            guessed += plays
            coached += await _baselines(stage, scenario, split)
            differences += await _differences(stage, plays, split)
            if any(play.hung for play in plays):
                break
    plays = [*guessed, *coached]
    findings += failure_findings(plays, folder, bounds)
    findings += message_findings(plays)
    findings += differences[:1]
    findings += reward_findings(guessed, coached)
    findings += ending_findings(plays, bounds)
    findings += time_findings(plays, bounds)
    return _report(kind, findings, scenarios, plays)


def _folder(kind: type[Environment]) -> Path:
    try:
        return Path(inspect.getfile(kind)).parent
    except (TypeError, OSError):
        return Path.cwd()


async def _guesses(stage: Stage, scenario: Scenario, split: str) -> list[Play]:
    plays: list[Play] = []
    for number in range(stage.bounds.attempts):
        # Every other one begins with something odd, all of them in turn.
        odd = ODD[(_number(scenario) + number) % len(ODD)] if number % 2 else None
        agent = Guesser(SEED + number, odd)
        plays.append(await stage.play(scenario, split, _always(agent)))
        if plays[-1].hung:
            break
    return plays


def _always(agent: Agent) -> Callable[[int], Agent]:
    return lambda seed: agent


def _number(scenario: Scenario) -> int:
    return sum(scenario.id.encode(errors="replace"))


async def _baselines(stage: Stage, scenario: Scenario, split: str) -> list[Play]:
    return [await stage.play(scenario, split, maker) for maker in stage.kind.baselines.values()]


async def _differences(stage: Stage, plays: Sequence[Play], split: str) -> list[Finding]:
    """Plays the longest episode that went well once more, word for word."""
    well = [play for play in plays if play.failure is None]
    if not well:
        return []
    first = max(well, key=lambda play: len(play.said))
    again = await stage.play(first.scenario, split, Guesser, script=first.said)
    return differing(first, again)


def _report(
    kind: type[Environment],
    findings: Sequence[Finding],
    scenarios: Mapping[str, Sequence[Scenario]],
    plays: Sequence[Play],
) -> Report:
    well = [play for play in plays if play.failure is None]
    return Report(
        name=kind.name,
        findings=tuple(sorted(findings, key=lambda found: found.level != "error")),
        scenarios={split: len(found) for split, found in scenarios.items()},
        episodes=len(well),
        ended=sum(play.ended for play in well),
        turns=sum(len(play.said) for play in well),
        rewards=tuple(play.total for play in well),
        slowest_seconds=max((play.slowest for play in plays), default=0.0),
    )
