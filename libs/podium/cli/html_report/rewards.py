"""How the rewards of the evaluated episodes are spread, before and after."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from podium.cli.html_report.collect import ReportData
from podium.cli.html_report.scrolled import scrolled
from podium.types.v1 import trajectory_pb2 as pb

_BINS = 10


def reward_spread(data: ReportData) -> str:
    """A row for each reward, or for each tenth of their range where there are many.

    Nothing where no evaluated episode has a reward.
    """
    times = [
        (when, style, found)
        for when, style, episodes in (("before", 6, data.before), ("after", 1, data.after))
        if (found := _rewards(episodes))
    ]
    if not times:
        return ""
    bins = _bins([value for _, _, found in times for value in found])
    head = "".join(
        f'<th class="n">{when}</th><th>{len(found)} episodes</th>' for when, _, found in times
    )
    rows = ""
    for at, (name, low, high) in enumerate(bins, start=1):
        cells = (_share(found, low, high, style, last=at == len(bins)) for _, style, found in times)
        rows += f"<tr><td>{escape(name)}</td>{''.join(cells)}</tr>"
    table = scrolled("Rewards", f"<table><tr><th>reward</th>{head}</tr>{rows}</table>")
    return (
        '<h2>Rewards</h2><p class="soft">Of the held-out episodes at the training temperature, '
        f"the share that got each reward.</p>{table}"
    )


def reward_of(episode: pb.Trajectory) -> float | None:
    """Its final reward; of an evaluation that nobody judges the environment's; None without."""
    if episode.HasField("reward"):
        return episode.reward
    return episode.environment_reward if episode.HasField("environment_reward") else None


def _rewards(episodes: Sequence[pb.Trajectory]) -> list[float]:
    found = map(reward_of, episodes)
    return [value for value in found if value is not None and math.isfinite(value)]


def _bins(values: Sequence[float]) -> list[tuple[str, float, float]]:
    """Name, lowest and highest of each; of a range the last alone holds its highest."""
    distinct = sorted(set(values))
    if len(distinct) <= _BINS:
        return [(f"{value:.4g}", value, value) for value in distinct]
    low, high = distinct[0], distinct[-1]
    edges = [low + (high - low) * at / _BINS for at in range(_BINS)] + [high]
    return [(f"{one:.3g} to {other:.3g}", one, other) for one, other in pairwise(edges)]


def _share(values: Sequence[float], low: float, high: float, style: int, *, last: bool) -> str:
    closed = last or low == high
    inside = sum(low <= value < high or (closed and value == high) for value in values)
    share = inside / len(values)
    bar = f'<div class="b{style}" style="width:{100 * share:.1f}%"></div>'
    return (
        f'<td class="n">{100 * share:.0f} %</td><td class="wide"><div class="bar">{bar}</div></td>'
    )
