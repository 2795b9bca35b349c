"""Whether budgets allow of any question at all, as far as that is known before there is one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podium.core.contract.judging import PART_FIELDS, judged_spec
from podium.core.errors import Violation
from podium.core.spending import NOTHING, Account, Amount, SpendingBound
from podium.types.v1 import spec_pb2


def bound_violations(
    reward: spec_pb2.RewardSpec, field: str, least: Sequence[Amount]
) -> list[Violation]:
    """Which bounds of a reward's scorers are below what a group takes at least.

    Args:
        field: where the reward stands.
        least: of each scorer that asks others, what its first questions about the shortest
            attempt can take. A bound is the whole job's, so it must hold the greatest of them.
    """
    most = NOTHING
    for each in least:
        most = most.highest(each)
    return [
        Violation(f"{field}.scorers[{index}].{path}", _text(bound, bound.part(most)))
        for index, scorer in enumerate(reward.scorers)
        for path, bound in _bounds(scorer)
        if not bound.may_have_room(most)
    ]


def _bounds(scorer: spec_pb2.Scorer) -> Iterator[tuple[str, SpendingBound]]:
    part = PART_FIELDS.get(scorer.kind, "")
    judged = judged_spec(scorer)
    if tokens := (judged or scorer.http).max_job_tokens:
        yield f"{part}.max_job_tokens", SpendingBound("", "", Account(), tokens)
    if judged is not None and judged.max_job_cost:
        yield f"{part}.max_job_cost", SpendingBound("", "", Account(), judged.max_job_cost, True)


def _text(bound: SpendingBound, least: float) -> str:
    unit, prices = ("", ", at their prices") if bound.is_money else (" tokens", "")
    return (
        f"got {bound.most:.12g}; allowed is at least {least:.12g}{unit}, which the first questions"
        " about the shortest attempt can take (a token a byte, and max_completion_tokens of each"
        f" judge{prices}): nothing is asked that could take more than is left"
    )
