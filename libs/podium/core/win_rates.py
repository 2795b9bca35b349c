"""Attempts against a reference's attempts at the same scenario, as a judge ranks them together.

A judge's scores compare only what it saw in one question: a mean of them over scenarios says
nothing of a policy alone. Whether an attempt was ranked above a reference's does.
"""

from __future__ import annotations

from collections.abc import Sequence

from podium.core import skip_reasons
from podium.core.means import mean_of
from podium.types.v1 import spec_pb2, trajectory_pb2

WIN, TIE, LOSS = 1.0, 0.5, 0.0
# Means over judges and orders: what differs by less is rounding.
_SAME = 1e-9


def alone_and_together(
    reward: spec_pb2.RewardSpec,
) -> tuple[spec_pb2.RewardSpec | None, spec_pb2.RewardSpec | None]:
    """The scorers whose scores mean something by themselves, and RULER, which ranks; None for none.

    RULER is asked in both orders, whatever the spec says: a judge's favour for a place must not
    be a policy's.
    """
    alone, together = spec_pb2.RewardSpec(), spec_pb2.RewardSpec()
    for scorer in reward.scorers:
        ranks = scorer.kind == spec_pb2.SCORER_KIND_RULER
        made = (together if ranks else alone).scorers.add()
        made.CopyFrom(scorer)
        if ranks:
            made.weight = 1.0
            made.ruler.both_orders = True
    return (alone if alone.scorers else None), (together if together.scorers else None)


def contest(
    group_id: str,
    own: Sequence[trajectory_pb2.Trajectory],
    reference: Sequence[trajectory_pb2.Trajectory],
) -> trajectory_pb2.Group | None:
    """The question to the judge: both sides' attempts that did not fail; None without one each."""
    ours, theirs = _running(own), _running(reference)
    if not ours or not theirs:
        return None
    return trajectory_pb2.Group(id=group_id, trajectories=[*ours, *theirs])


def wins(
    own: Sequence[trajectory_pb2.Trajectory],
    reference: Sequence[trajectory_pb2.Trajectory],
    judged: trajectory_pb2.Group | None,
) -> dict[str, float] | None:
    """By the id of each own attempt, the share of the reference's that it beats; a tie is a half.

    An attempt that failed, or that the judge had nothing to read of, loses to one that did not.

    Args:
        judged: the answer to `contest`; None where there was no question.

    Returns:
        None when the judge did not answer.
    """
    scores: dict[str, float] = {}
    if judged is not None:
        if judged.skip_reason == skip_reasons.ZERO_VARIANCE:
            # Word for word the same.
            scores = {each.id: 0.0 for each in judged.trajectories}
        elif judged.skip_reason not in ("", skip_reasons.NO_REWARD):
            return None
        scores |= {each.id: each.reward for each in judged.trajectories if each.HasField("reward")}
    elif _running(own) and _running(reference):
        return None
    else:
        scores = {each.id: 0.0 for each in (*_running(own), *_running(reference))}
    return {
        each.id: mean_of(_outcome(scores.get(each.id), scores.get(other.id)) for other in reference)
        for each in own
        if reference
    }


def shown_first(
    judged: trajectory_pb2.Group, own: Sequence[trajectory_pb2.Trajectory]
) -> list[float]:
    """What the attempt shown first got, of each pair of an own and a reference's, in each order.

    1 for the higher score, 0.5 for the same: without a favour for places their mean is 0.5.
    """
    ours = {each.id for each in own}
    found = []
    for judgement in judged.judgements:
        for opinion in judgement.opinions:
            mine = [each for each in opinion.attempts if each.trajectory_id in ours]
            theirs = [each for each in opinion.attempts if each.trajectory_id not in ours]
            for a in mine:
                for b in theirs:
                    if a.place and b.place and a.place != b.place:
                        first, second = (a, b) if a.place < b.place else (b, a)
                        found.append(_outcome(first.score, second.score))
    return found


def _outcome(own: float | None, other: float | None) -> float:
    if own is None or other is None:
        return TIE if own is other else WIN if other is None else LOSS
    if abs(own - other) <= _SAME:
        return TIE
    return WIN if own > other else LOSS


def _running(
    trajectories: Sequence[trajectory_pb2.Trajectory],
) -> list[trajectory_pb2.Trajectory]:
    return [each for each in trajectories if each.stop_reason != trajectory_pb2.STOP_REASON_FAILED]
