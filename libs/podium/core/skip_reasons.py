"""Why a group or a trajectory does not train: the contract's enum, and how it is written.

The words are the enum's names, so that who adds a reason adds it to the contract alone.
"""

from __future__ import annotations

from typing import Final

from podium.types.v1 import trajectory_pb2

_PREFIX = "SKIP_REASON_"


def word_of(reason: trajectory_pb2.SkipReason.ValueType) -> str:
    """As `Group.skip_reason`, metrics and events have it."""
    return trajectory_pb2.SkipReason.Name(reason).removeprefix(_PREFIX).lower()


def reason_of(word: str) -> trajectory_pb2.SkipReason.ValueType | None:
    """Which one is meant; None for a word that this contract does not have."""
    return trajectory_pb2.SkipReason.Value(_PREFIX + word.upper()) if word in WORDS else None


def bounded(word: str) -> str:
    """The word as a metric's label: `other` where somebody made it up."""
    return "other" if reason_of(word) is None else word


ALL_FAILED: Final = word_of(trajectory_pb2.SKIP_REASON_ALL_FAILED)
GROUP_OF_ONE: Final = word_of(trajectory_pb2.SKIP_REASON_GROUP_OF_ONE)
ZERO_VARIANCE: Final = word_of(trajectory_pb2.SKIP_REASON_ZERO_VARIANCE)
NO_TRAINABLE_TRAJECTORY: Final = word_of(trajectory_pb2.SKIP_REASON_NO_TRAINABLE_TRAJECTORY)
NO_REWARD: Final = word_of(trajectory_pb2.SKIP_REASON_NO_REWARD)
JUDGE_FAILED: Final = word_of(trajectory_pb2.SKIP_REASON_JUDGE_FAILED)
JUDGE_BUDGET: Final = word_of(trajectory_pb2.SKIP_REASON_JUDGE_BUDGET)
JUDGE_UNAVAILABLE: Final = word_of(trajectory_pb2.SKIP_REASON_JUDGE_UNAVAILABLE)
JUDGE_ERROR: Final = word_of(trajectory_pb2.SKIP_REASON_JUDGE_ERROR)
FAILED: Final = word_of(trajectory_pb2.SKIP_REASON_FAILED)
REWARD_NOT_FINITE: Final = word_of(trajectory_pb2.SKIP_REASON_REWARD_NOT_FINITE)
OVERLONG: Final = word_of(trajectory_pb2.SKIP_REASON_OVERLONG)
OVER_MAX_ROW_TOKENS: Final = word_of(trajectory_pb2.SKIP_REASON_OVER_MAX_ROW_TOKENS)
NO_SAMPLED_TOKENS: Final = word_of(trajectory_pb2.SKIP_REASON_NO_SAMPLED_TOKENS)
GREEDY: Final = word_of(trajectory_pb2.SKIP_REASON_GREEDY)
TEACHER_UNAVAILABLE: Final = word_of(trajectory_pb2.SKIP_REASON_TEACHER_UNAVAILABLE)
TEACHER_ERROR: Final = word_of(trajectory_pb2.SKIP_REASON_TEACHER_ERROR)
NO_TEACHER: Final = word_of(trajectory_pb2.SKIP_REASON_NO_TEACHER)
GROUP_REFUSED: Final = word_of(trajectory_pb2.SKIP_REASON_GROUP_REFUSED)
ENVIRONMENT_UNAVAILABLE: Final = word_of(trajectory_pb2.SKIP_REASON_ENVIRONMENT_UNAVAILABLE)
EPISODES_LOST: Final = word_of(trajectory_pb2.SKIP_REASON_EPISODES_LOST)
JUDGE_MISCONFIGURED: Final = word_of(trajectory_pb2.SKIP_REASON_JUDGE_MISCONFIGURED)

WORDS: Final = frozenset(
    word_of(reason)
    for reason in trajectory_pb2.SkipReason.values()
    if reason != trajectory_pb2.SKIP_REASON_UNSPECIFIED
)

NOT_COLLECTED: Final = "NotCollected"
"""`Failure.type` of an attempt that broke one of our services, not its environment."""

NO_JUDGE_ANSWERS: Final = JUDGE_UNAVAILABLE.upper()
"""Reason of the UnavailableError of a judge service that is there, but whose models do not answer.

Who waits too long for it skips the group with JUDGE_UNAVAILABLE.
"""

NO_TEACHER_ANSWERS: Final = TEACHER_UNAVAILABLE.upper()
"""The same of a teacher's pool; TEACHER_UNAVAILABLE."""

NO_ENVIRONMENT_ANSWERS: Final = ENVIRONMENT_UNAVAILABLE.upper()
"""The same of an environment, of an attempt or a group; ENVIRONMENT_UNAVAILABLE."""

EPISODES_WERE_LOST: Final = EPISODES_LOST.upper()
"""Reason of the UnavailableError of a group whose environment was lost under all attempts."""
