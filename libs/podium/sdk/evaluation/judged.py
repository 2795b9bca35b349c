"""Two policies compared by a judge, on the same scenarios."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from podium.core.errors import PodiumError
from podium.core.means import mean_of
from podium.core.statistics import clustered_share_interval, sign_flip_p_value
from podium.core.win_rates import contest, shown_first, wins
from podium.sdk.evaluation.asking import PATIENCE_SECONDS, Ask, ask_about
from podium.types.v1 import trajectory_pb2


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
    judgements: Mapping[str, Sequence[trajectory_pb2.Judgement]] = field(default_factory=dict)
    """By scenario, who was asked, how, and what each said. Attempts are `own/…` and
    `reference/…` there."""


async def judge_wins(
    ask: Ask,
    reference: Sequence[trajectory_pb2.Trajectory],
    own: Sequence[trajectory_pb2.Trajectory],
    *,
    concurrency: int = 8,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Judged:
    """Compares by scenario; those that both attempted count.

    Args:
        ask: ranks a group, in both orders; see `podium.core.win_rates.alone_and_together`.
        concurrency: questions at once.
        patience_seconds: see `ask_about`.

    Raises:
        InvalidArgumentError: the judge service takes none of the questions.
    """
    ours, theirs = _by_scenario(own, "own"), _by_scenario(reference, "reference")
    shared = [scenario for scenario in ours if scenario in theirs]
    contests = {name: contest(f"eval/{name}", ours[name], theirs[name]) for name in shared}
    found = await ask_about(
        ask,
        {name: asked for name, asked in contests.items() if asked is not None},
        concurrency=concurrency,
        patience_seconds=patience_seconds,
    )
    judgements = {
        name: list(answer.group.judgements)
        for name, answer in found.items()
        if not isinstance(answer, PodiumError) and answer.group.judgements
    }

    def outcome(name: str) -> tuple[dict[str, float] | None, str, list[float]]:
        answer = found.get(name)
        if isinstance(answer, PodiumError):
            return None, answer.message, []
        if answer is None:
            return wins(ours[name], theirs[name], None), "", []
        judged = answer.group
        won = wins(ours[name], theirs[name], judged)
        return won, judged.skip_reason, shown_first(judged, ours[name])

    answers = {name: outcome(name) for name in shared}
    told = {name: answer[0] for name, answer in answers.items() if answer[0] is not None}
    clusters = [list(each.values()) for each in told.values()]
    low, high = clustered_share_interval(clusters)
    places = [value for _, _, each in answers.values() for value in each]
    numbers = {each.id: (name, each.attempt) for name in told for each in ours[name]}
    return Judged(
        scenarios=len(told),
        win_rate=mean_of(value for each in clusters for value in each) if clusters else None,
        low=low,
        high=high,
        p_value=sign_flip_p_value([mean_of(each) - 0.5 for each in clusters]),
        first_shown=mean_of(places) if places else None,
        unjudged=Counter(why for won, why, _ in answers.values() if won is None),
        wins={numbers[name]: value for each in told.values() for name, value in each.items()},
        judgements=judgements,
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
