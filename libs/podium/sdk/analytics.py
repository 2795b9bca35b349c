"""How a set of episodes went, under the tutorial's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from google.protobuf.json_format import MessageToDict

from podium.core.actions import actions_of, has_succeeded, total_reward
from podium.types.v1 import trajectory_pb2

_TEXT = 200
_CUT = {
    trajectory_pb2.STOP_REASON_TRUNCATED: "truncated",
    trajectory_pb2.STOP_REASON_MAX_TURNS: "max_turns",
    trajectory_pb2.STOP_REASON_CONTEXT_LENGTH: "context_length",
    trajectory_pb2.STOP_REASON_DEADLINE: "deadline",
}


def get_performance_analytics(
    trajectories: Iterable[trajectory_pb2.Trajectory],
) -> dict[str, Any]:
    """Rates and means over episodes, how often each action was taken, and what went wrong.

    `error_patterns` has, most frequent first, `pattern`, `count` and the `episodes` (ten at
    most): the exception of an episode that failed, the environment's own `info["error"]`, and of
    an episode without success how it was cut.
    """
    total, succeeded, reward, steps = 0, 0, 0.0, 0
    actions: Counter[str] = Counter()
    errors: dict[str, list[str]] = {}
    for each in trajectories:
        taken = actions_of(each)
        total += 1
        succeeded += has_succeeded(each)
        reward += total_reward(each)
        steps += len(taken)
        actions.update(action.type for action in taken)
        if pattern := _error(each):
            errors.setdefault(pattern, []).append(each.id)
    return {
        "total_traces": total,
        "success_rate": succeeded / total if total else 0,
        "average_reward": reward / total if total else 0,
        "average_steps": steps / total if total else 0,
        "action_distribution": dict(actions),
        "error_patterns": [
            {"pattern": pattern, "count": len(ids), "episodes": ids[:10]}
            for pattern, ids in sorted(errors.items(), key=lambda item: -len(item[1]))
        ],
    }


def _error(trajectory: trajectory_pb2.Trajectory) -> str:
    if trajectory.stop_reason == trajectory_pb2.STOP_REASON_FAILED:
        failure = trajectory.failure
        return f"{failure.type or 'failed'}: {failure.message}"[:_TEXT]
    if error := MessageToDict(trajectory.info).get("error"):
        return str(error)[:_TEXT]
    return "" if has_succeeded(trajectory) else _CUT.get(trajectory.stop_reason, "")
