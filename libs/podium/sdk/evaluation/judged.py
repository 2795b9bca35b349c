"""Two policies compared by a judge, on the same scenarios."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from podium.core.errors import InvalidArgumentError, PodiumError
from podium.core.statistics import clustered_share_interval, sign_flip_p_value
from podium.core.win_rates import contest, shown_first, wins
from podium.judge.v1 import judge_service_pb2 as pb
from podium.kit.rpc import retry_unavailable
from podium.types.v1 import trajectory_pb2

Ask = Callable[[trajectory_pb2.Group], Awaitable[pb.ScoreGroupResponse]]
"""Has a judge rank a group, in both orders; see `podium.core.win_rates.alone_and_together`."""

_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Judged:
    """How often one policy's attempts beat another's."""

    scenarios: int
    """Those that the judge answered for, or that needed no judge."""
    win_rate: float | None
    """Share of pairs that it won, a tie counting half; None without any answer."""
    low: float
    high: float
    """The 95 % interval of `win_rate` over scenarios: see `clustered_share_interval`."""
    p_value: float
    """Of no difference, two-sided; see `sign_flip_p_value`."""
    first_shown: float | None
    """How often the one won that the judge saw first; far from 0.5 it favours places."""
    unjudged: Mapping[str, int]
    """Scenarios without an answer, by the reason; no number counts them."""
    wins: Mapping[tuple[str, int], float]
    """By scenario and attempt, the share of the reference's attempts that it beat."""


async def judge_wins(
    ask: Ask,
    reference: Sequence[trajectory_pb2.Trajectory],
    own: Sequence[trajectory_pb2.Trajectory],
    *,
    concurrency: int = 8,
    patience_seconds: float = _PATIENCE_SECONDS,
) -> Judged:
    """Compares by scenario; those that both attempted count.

    Args:
        concurrency: questions at once.
        patience_seconds: how long a judge that is away is asked again, for each scenario.

    Raises:
        InvalidArgumentError: the judge service cannot take the question.
    """
    ours, theirs = _by_scenario(own, "own"), _by_scenario(reference, "reference")
    slots = asyncio.Semaphore(concurrency)

    async def one(scenario: str) -> tuple[dict[str, float] | None, str, list[float]]:
        asked = contest(f"eval/{scenario}", ours[scenario], theirs[scenario])
        if asked is None:
            return wins(ours[scenario], theirs[scenario], None), "", []
        try:
            async with slots:
                found = await retry_unavailable(lambda: ask(asked), timeout_s=patience_seconds)
        except InvalidArgumentError:
            raise
        except PodiumError as error:
            return None, error.message, []
        outcome = wins(ours[scenario], theirs[scenario], found.group)
        return outcome, found.group.skip_reason, shown_first(found.group, ours[scenario])

    shared = [scenario for scenario in ours if scenario in theirs]
    answers = dict(zip(shared, await asyncio.gather(*map(one, shared)), strict=True))
    told = {name: answer[0] for name, answer in answers.items() if answer[0] is not None}
    clusters = [list(each.values()) for each in told.values()]
    low, high = clustered_share_interval(clusters)
    places = [value for _, _, each in answers.values() for value in each]
    numbers = {each.id: (name, each.attempt) for name in told for each in ours[name]}
    return Judged(
        scenarios=len(told),
        win_rate=fmean(value for each in clusters for value in each) if clusters else None,
        low=low,
        high=high,
        p_value=sign_flip_p_value([fmean(each) - 0.5 for each in clusters]),
        first_shown=fmean(places) if places else None,
        unjudged=Counter(why for outcome, why, _ in answers.values() if outcome is None),
        wins={numbers[name]: value for each in told.values() for name, value in each.items()},
    )


def _by_scenario(
    trajectories: Sequence[trajectory_pb2.Trajectory], side: str
) -> dict[str, list[trajectory_pb2.Trajectory]]:
    """Under ids that tell the two sides apart: the same command gives both the same."""
    found: dict[str, list[trajectory_pb2.Trajectory]] = {}
    for each in trajectories:
        if each.side:
            continue
        made = trajectory_pb2.Trajectory()
        made.CopyFrom(each)
        made.id = f"{side}/{each.id}"
        found.setdefault(each.scenario_id, []).append(made)
    return found
