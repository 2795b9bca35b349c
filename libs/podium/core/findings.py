"""What a job's coach may find: the reasons, and which of them a job's events leave open.

A finding is told by two events, a WARNING when it begins and a RECOVERY when it is over; both
end with its reason in brackets, for programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from podium.jobs.v1 import job_service_pb2 as pb

NO_VARIANCE: Final = "NO_VARIANCE"
TASK_SOLVED: Final = "TASK_SOLVED"
GROUPS_SKIPPED: Final = "GROUPS_SKIPPED"
GROUPS_STALE: Final = "GROUPS_STALE"
EPISODES_FAILING: Final = "EPISODES_FAILING"
ANSWERS_CUT: Final = "ANSWERS_CUT"
EPISODES_UNFINISHED: Final = "EPISODES_UNFINISHED"
JUDGE_ONE_SCORE: Final = "JUDGE_ONE_SCORE"
JUDGE_POSITION_BIAS: Final = "JUDGE_POSITION_BIAS"
LEARNING_RATE_TOO_HIGH: Final = "LEARNING_RATE_TOO_HIGH"
ENTROPY_COLLAPSE: Final = "ENTROPY_COLLAPSE"
REWARD_FALLING: Final = "REWARD_FALLING"
STALENESS_TOO_LARGE: Final = "STALENESS_TOO_LARGE"
SAMPLER_MISMATCH: Final = "SAMPLER_MISMATCH"

REASONS: Final = frozenset(
    {
        NO_VARIANCE,
        TASK_SOLVED,
        GROUPS_SKIPPED,
        GROUPS_STALE,
        EPISODES_FAILING,
        ANSWERS_CUT,
        EPISODES_UNFINISHED,
        JUDGE_ONE_SCORE,
        JUDGE_POSITION_BIAS,
        LEARNING_RATE_TOO_HIGH,
        ENTROPY_COLLAPSE,
        REWARD_FALLING,
        STALENESS_TOO_LARGE,
        SAMPLER_MISMATCH,
    }
)
"""All of them."""

_LAST_WORD = re.compile(r"\(([A-Z_]+)\)$")


def finding_of(message: str) -> str:
    """The reason of an event's message; empty for one that tells of no finding."""
    found = _LAST_WORD.search(message)
    return found[1] if found and found[1] in REASONS else ""


def open_findings(events: Iterable[tuple[pb.EventType.ValueType, str]]) -> dict[str, str]:
    """What has begun and is not over, by reason, with the words that it began with.

    Args:
        events: type and message of each, oldest first; others than findings may be among them.
    """
    found: dict[str, str] = {}
    for kind, message in events:
        reason = finding_of(message)
        if reason and kind == pb.EVENT_TYPE_WARNING:
            found[reason] = message
        elif reason and kind == pb.EVENT_TYPE_RECOVERY:
            found.pop(reason, None)
    return found
