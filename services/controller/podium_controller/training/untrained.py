"""What is told of a step that moved no weight, and what to change."""

from __future__ import annotations

from collections.abc import Mapping

from podium.core.skip_reasons import (
    ALL_FAILED,
    GROUP_OF_ONE,
    NO_TRAINABLE_TRAJECTORY,
    ZERO_VARIANCE,
)

NOTHING_TRAINED = "NOTHING_TRAINED"
"""Stands at the end of the event, for programs."""

_SKIPPED = "groups_skipped/"
_TOKENS = "train/tokens_trained"
# What is said of the groups, and what of the job's specification helps.
_REASONS = {
    ZERO_VARIANCE: (
        "had no variance: each attempt of a group got the same reward",
        "raise rollout.group_size or rollout.sampling.temperature, or shape the reward",
    ),
    GROUP_OF_ONE: ("had a single attempt", "raise rollout.group_size to 2 or more"),
    NO_TRAINABLE_TRAJECTORY: (
        "had no attempt that can be trained: all failed or were left out",
        "look at them with `podium job trajectories`; longer ones need training.max_row_tokens",
    ),
    ALL_FAILED: (
        "failed in every attempt",
        "read the failures with `podium job trajectories`",
    ),
}
_OTHERWISE = "look at the attempts with `podium job trajectories`"


def untrained(step: int, metrics: Mapping[str, float], groups: int) -> str:
    """The words of the event; empty for a step that trained something.

    Args:
        metrics: of the committed step, by their names in `Step.metrics`.
        groups: how many the step had.
    """
    skipped = {
        name.removeprefix(_SKIPPED): int(count)
        for name, count in metrics.items()
        if name.startswith(_SKIPPED) and count > 0
    }
    if not groups or (sum(skipped.values()) < groups and metrics.get(_TOKENS, 1.0) > 0):
        return ""
    said, hints = [], []
    for reason, count in sorted(skipped.items(), key=lambda item: -item[1]):
        what, hint = _REASONS.get(reason, (f"were skipped ({reason})", _OTHERWISE))
        said.append(f"{count} of {groups} groups {what}")
        hints.append(hint)
    why = "; ".join(said) or "no token of any attempt could be trained"
    advice = "; ".join(dict.fromkeys(hints)) or _OTHERWISE
    return f"step {step} trained nothing: {why}. To change that, {advice} ({NOTHING_TRAINED})"
