"""Which part of a gain in success is format, and which is the task itself, such as search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podium.types.v1.trajectory_pb2 import Trajectory

FORMAT, HIT, SUCCESS = "valid_format", "search_hit", "success"


@dataclass(frozen=True)
class Rates:
    """Shares of episodes, each in [0, 1].

    `format` is the share whose every action could be read; `hit_if_valid`,
    the share of those whose search found the target; `success_if_valid` and
    `success_if_invalid`, the shares that succeeded. A rate over no episodes
    is None. `searches` is whether the task reports a search at all.
    """

    episodes: int
    format: float
    success: float
    hit_if_valid: float | None
    success_if_valid: float | None
    success_if_invalid: float | None
    searches: bool


@dataclass(frozen=True)
class Gain:
    """A gain in success, split without remainder: total = by_format + by_search.

    `by_search` is whatever is not format; of a task that searches that is the search.
    """

    total: float
    by_format: float
    by_search: float


def rates(episodes: Sequence[Trajectory]) -> Rates | None:
    """The rates of one evaluation; None when the environment does not report the format."""
    if not episodes or not any(FORMAT in episode.metrics for episode in episodes):
        return None
    valid = [episode for episode in episodes if _value(episode, FORMAT) >= 1.0]
    invalid = [episode for episode in episodes if _value(episode, FORMAT) < 1.0]
    searches = any(HIT in episode.metrics for episode in episodes)
    return Rates(
        episodes=len(episodes),
        format=len(valid) / len(episodes),
        success=_mean(episodes, SUCCESS) or 0.0,
        hit_if_valid=_mean(valid, HIT) if searches else None,
        success_if_valid=_mean(valid, SUCCESS),
        success_if_invalid=_mean(invalid, SUCCESS),
        searches=searches,
    )


def labelled(before: Rates, after: Rates) -> list[tuple[str, float | None, float | None]]:
    """What a reader is shown of both: a label, the rate before, the rate after."""
    found = ("search found the target, given that", before.hit_if_valid, after.hit_if_valid)
    return [
        ("every action in valid format", before.format, after.format),
        *([found] if after.searches else []),
        ("success, given valid format", before.success_if_valid, after.success_if_valid),
    ]


def split_gain(before: Rates, after: Rates) -> Gain:
    """Splits the gain in success by Kitagawa's decomposition.

    Success is a mixture: f v + (1 - f) w, with f the share of episodes in
    valid format and v and w the success among those and the others. The
    change is, exactly,

        (f1 - f0) * (mean v - mean w)                        by format
        + mean f * (v1 - v0) + (1 - mean f) * (w1 - w0)      by search

    with means over before and after (E. M. Kitagawa, "Components of a
    Difference Between Two Rates", JASA 50 (1955)). A rate that one side
    cannot know, having no such episodes, is taken from the other side: what
    cannot be told apart counts as format.
    """
    v0, v1 = _pair(before.success_if_valid, after.success_if_valid)
    w0, w1 = _pair(before.success_if_invalid, after.success_if_invalid)
    f0, f1 = before.format, after.format
    share = (f0 + f1) / 2
    by_format = (f1 - f0) * ((v0 + v1) / 2 - (w0 + w1) / 2)
    by_search = share * (v1 - v0) + (1 - share) * (w1 - w0)
    return Gain(total=after.success - before.success, by_format=by_format, by_search=by_search)


def pairs(
    before: Sequence[Trajectory], after: Sequence[Trajectory], count: int
) -> list[tuple[Trajectory, Trajectory]]:
    """First attempts at the same scenario before and after, at most `count`.

    In the order of the evaluation, but scenarios that were failed before and
    solved after come first: they show what was learned. `count` of them need
    not exist.
    """
    last = {item.scenario_id: item for item in reversed(after)}
    first: dict[str, Trajectory] = {}
    for item in before:
        if item.scenario_id in last:
            first.setdefault(item.scenario_id, item)
    both = [(item, last[scenario]) for scenario, item in first.items()]
    both.sort(key=lambda pair: _value(pair[1], SUCCESS) - _value(pair[0], SUCCESS), reverse=True)
    return both[:count]


def _value(episode: Trajectory, name: str) -> float:
    return episode.metrics.get(name, 0.0)


def _mean(episodes: Sequence[Trajectory], name: str) -> float | None:
    if not episodes:
        return None
    return sum(_value(episode, name) for episode in episodes) / len(episodes)


def _pair(before: float | None, after: float | None) -> tuple[float, float]:
    known = [value for value in (before, after) if value is not None] or [0.0]
    return (
        known[0] if before is None else before,
        known[-1] if after is None else after,
    )
