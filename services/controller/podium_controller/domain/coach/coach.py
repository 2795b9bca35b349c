"""Which findings begin with a step, and which are over."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from podium.core import findings as reasons
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2

from podium_controller.domain.coach.attempts import of_attempts
from podium_controller.domain.coach.groups import of_groups
from podium_controller.domain.coach.stability import of_policy
from podium_controller.domain.coach.window import Finding, Window

WINDOW_STEPS = 100
"""How many steps are looked at, the new one included."""
_OVER_STEPS = 5
"""For so many steps a finding must not be seen before it is over."""

# What explains others is told in their place.
_EXPLAINS = {
    reasons.EPISODES_FAILING: {
        reasons.GROUPS_SKIPPED,
        reasons.NO_VARIANCE,
        reasons.REWARD_FALLING,
        reasons.ANSWERS_CUT,
        reasons.EPISODES_UNFINISHED,
    },
    reasons.LEARNING_RATE_TOO_HIGH: {
        reasons.REWARD_FALLING,
        reasons.ENTROPY_COLLAPSE,
        reasons.NO_VARIANCE,
        reasons.ANSWERS_CUT,
        reasons.EPISODES_UNFINISHED,
        reasons.GROUPS_SKIPPED,
    },
    reasons.STALENESS_TOO_LARGE: {reasons.REWARD_FALLING},
    reasons.SAMPLER_MISMATCH: {reasons.REWARD_FALLING},
    reasons.ANSWERS_CUT: {
        reasons.EPISODES_UNFINISHED,
        reasons.NO_VARIANCE,
        reasons.GROUPS_SKIPPED,
    },
    reasons.EPISODES_UNFINISHED: {reasons.NO_VARIANCE, reasons.GROUPS_SKIPPED},
    reasons.JUDGE_ONE_SCORE: {
        reasons.NO_VARIANCE,
        reasons.GROUPS_SKIPPED,
        reasons.JUDGE_POSITION_BIAS,
    },
    reasons.ENTROPY_COLLAPSE: {reasons.NO_VARIANCE, reasons.GROUPS_SKIPPED},
    reasons.NO_VARIANCE: {reasons.GROUPS_SKIPPED},
    reasons.TASK_SOLVED: {reasons.GROUPS_SKIPPED},
}


@dataclass(frozen=True)
class CoachEvent:
    """An event to write with a step."""

    kind: pb.EventType.ValueType
    message: str


def findings(steps: Sequence[pb.Step], spec: spec_pb2.JobSpec) -> dict[str, Finding]:
    """What is wrong after the last of the steps, by reason; what explains the rest first.

    Args:
        steps: consecutive ones, oldest first.
        spec: of their job, with its defaults.
    """
    window = Window(steps, spec)
    if not window:
        return {}
    found = [*of_attempts(window), *of_policy(window), *of_groups(window)]
    return {each.reason: each for each in found}


def news(
    begun: Collection[str], steps: Sequence[pb.Step], spec: spec_pb2.JobSpec
) -> list[CoachEvent]:
    """What to tell of with the last of the steps.

    Args:
        begun: the reasons of findings that have begun and are not over.
        steps: at most `WINDOW_STEPS` consecutive ones, oldest first.
        spec: of their job, with its defaults.
    """
    seen = findings(steps, spec)
    # What was seen a step ago and is not over explains as well as what is seen now.
    explained = {each for reason in {*seen, *begun} for each in _EXPLAINS.get(reason, ())}
    number = steps[-1].number if steps else 0
    result = [
        CoachEvent(
            pb.EVENT_TYPE_WARNING,
            f"step {number}: {each.says}. To change that, {each.change} ({reason})",
        )
        for reason, each in seen.items()
        if reason not in begun and reason not in explained
    ]
    gone = set(begun) - set(seen)
    # Looked for again only where one may be over.
    before = [findings(steps[:-back], spec) for back in range(1, _OVER_STEPS + 1) if gone]
    for reason in sorted(gone):
        if any(reason in each for each in before[:-1]):
            continue
        words = before[-1][reason].over if reason in before[-1] else "it is over"
        result.append(CoachEvent(pb.EVENT_TYPE_RECOVERY, f"step {number}: {words} ({reason})"))
    return result
