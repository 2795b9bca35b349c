"""An agent's attempts scored by what a job's reward may have: rubrics, criteria, served scorers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from podium.core import skip_reasons
from podium.core.errors import PodiumError
from podium.sdk.evaluation.asking import PATIENCE_SECONDS, Ask, ask_about
from podium.sdk.evaluation.attempts import Attempt
from podium.types.v1 import trajectory_pb2

_NOT_SCORED = "not scored: "
_ANSWERED = ("", skip_reasons.NO_REWARD, skip_reasons.ALL_FAILED)
"""Skip reasons of groups whose attempts were each looked at."""


@dataclass(frozen=True)
class Verdict:
    """What one attempt got."""

    reward: float | None
    """None for one that failed, or that a scorer gave nothing."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Each scorer's score before its weight, as `Trajectory.reward_parts`."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What scorers measured besides, such as `rubric/NAME` of a criterion."""
    explanation: str = ""


@dataclass(frozen=True)
class Scored:
    """What an agent's attempts got."""

    scenarios: int
    """Those that were answered for."""
    unanswered: Mapping[str, int]
    """Scenarios without an answer, by the reason; their attempts have no verdict."""
    without: Mapping[str, int]
    """Attempts that did not fail and that a scorer gave nothing, by the reason."""
    verdicts: Mapping[tuple[str, int], Verdict]
    """By scenario and attempt."""
    judgements: Mapping[str, Sequence[trajectory_pb2.Judgement]]
    """By scenario, who was asked, how, and what each said."""


async def judge_rewards(
    ask: Ask,
    trajectories: Sequence[trajectory_pb2.Trajectory],
    scenarios: Mapping[str, trajectory_pb2.Scenario] | None = None,
    *,
    concurrency: int = 8,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Scored:
    """Has each scenario's attempts scored, one question a scenario.

    Args:
        ask: of a reward without RULER, whose scores say nothing beyond their group.
        scenarios: by their ids, for scorers that are told the scenario's data.
        concurrency: questions at once.
        patience_seconds: see `ask_about`.

    Raises:
        InvalidArgumentError: the judge service takes none of the questions.
    """
    groups: dict[str, trajectory_pb2.Group] = {}
    for each in sorted(trajectories, key=lambda each: each.attempt):
        if each.side:
            continue
        name = each.scenario_id
        if name not in groups:
            scenario = (scenarios or {}).get(name) or trajectory_pb2.Scenario(id=name)
            groups[name] = trajectory_pb2.Group(id=f"eval/{name}", scenario=scenario)
        groups[name].trajectories.append(each)
    answers = await ask_about(
        ask, groups, concurrency=concurrency, patience_seconds=patience_seconds
    )
    unanswered: Counter[str] = Counter()
    without: Counter[str] = Counter()
    verdicts: dict[tuple[str, int], Verdict] = {}
    judgements: dict[str, Sequence[trajectory_pb2.Judgement]] = {}
    for name, answer in answers.items():
        if isinstance(answer, PodiumError):
            unanswered[answer.message] += 1
            continue
        found = answer.group
        if found.judgements:
            judgements[name] = list(found.judgements)
        if found.skip_reason not in _ANSWERED:
            unanswered[_why(found)] += 1
            continue
        for asked, each in zip(groups[name].trajectories, found.trajectories, strict=True):
            verdict = _verdict(asked, each)
            verdicts[name, each.attempt] = verdict
            failed = each.stop_reason == trajectory_pb2.STOP_REASON_FAILED
            if verdict.reward is None and not failed:
                without[verdict.explanation] += 1
    return Scored(len(answers) - unanswered.total(), unanswered, without, verdicts, judgements)


def rescored(
    attempts: Sequence[Attempt], scored: Scored, threshold: float | None = None
) -> list[Attempt]:
    """The attempts with the scorers' rewards, NaN for none, and what they measured besides.

    Whether one succeeded stays what it was by the environment's own reward; see
    `Attempt.succeeded` for `threshold`.
    """
    found = []
    for attempt in attempts:
        verdict = scored.verdicts.get((attempt.scenario_id, attempt.attempt), Verdict(None))
        found.append(
            replace(
                attempt,
                reward=math.nan if verdict.reward is None else verdict.reward,
                metrics={**attempt.metrics, **verdict.metrics},
                decided=attempt.succeeded(threshold),
            )
        )
    return found


def _verdict(asked: trajectory_pb2.Trajectory, found: trajectory_pb2.Trajectory) -> Verdict:
    return Verdict(
        reward=found.reward if found.HasField("reward") else None,
        parts=dict(found.reward_parts),
        metrics={name: value for name, value in found.metrics.items() if name not in asked.metrics},
        explanation=found.explanation.removeprefix(_NOT_SCORED),
    )


def _why(group: trajectory_pb2.Group) -> str:
    words = next((each.explanation for each in group.trajectories if each.explanation), "")
    return words.removeprefix(_NOT_SCORED) or group.skip_reason
