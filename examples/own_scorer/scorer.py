"""A reward of one's own: `podium scorer serve scorer:score`, in this folder.

The judge service sends what the README of services/judge has under "Your own scorer".
"""

from __future__ import annotations

from typing import Any


def score(scenario: dict[str, Any], trajectories: list[dict[str, Any]]) -> list[tuple[float, str]]:
    """The environment's reward, less a little for each message that was not needed."""
    shortest = min(len(each["messages"]) for each in trajectories)
    scores = []
    for each in trajectories:
        more = len(each["messages"]) - shortest
        reward = (each["reward"] or 0.0) - 0.05 * more
        scores.append((reward, f"{more} messages more than the shortest attempt"))
    return scores
