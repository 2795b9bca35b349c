"""What judges said, as the group keeps it."""

from __future__ import annotations

from collections.abc import Sequence

from podium.chat import Asked
from podium.types.v1 import trajectory_pb2

from podium_judge.domain.opinion import Opinion
from podium_judge.domain.position import correlation


def record_comparison(
    opinion: Opinion, shown: Sequence[tuple[str, int]]
) -> trajectory_pb2.JudgeOpinion:
    """An opinion on attempts that were compared.

    Args:
        shown: the id of each attempt, and which of the opinion's scores is its.
    """
    said = _head([opinion])
    record = opinion.record
    said.prompt_digest = record.prompt_digest
    said.finish_reason = record.finish_reason
    if record.asked and record.asked.seed is not None:
        said.seed = record.asked.seed
    if opinion.failure:
        said.failure = opinion.failure.text
        return said
    for trajectory_id, number in shown:
        said.attempts.add(
            trajectory_id=trajectory_id,
            score=opinion.scores[number].value,
            place=opinion.places[number],
        )
    found = correlation(opinion.places, [score.value for score in opinion.scores])
    if found is not None:
        said.position_correlation = found
    return said


def record_grades(
    opinions: Sequence[Opinion], scores: Sequence[tuple[str, float, Opinion]]
) -> trajectory_pb2.JudgeOpinion:
    """What one judge said about attempts that it saw one by one.

    Args:
        opinions: one an attempt of other words, at least one.
        scores: the id and score of each attempt that it scored, and of which opinion it is.
    """
    said = _head(opinions)
    failures = [opinion.failure.text for opinion in opinions if opinion.failure]
    if failures and not scores:
        said.failure = "; ".join(dict.fromkeys(failures))
    for trajectory_id, score, opinion in scores:
        record = opinion.record
        said.attempts.add(
            trajectory_id=trajectory_id,
            score=score,
            prompt_digest=record.prompt_digest,
            finish_reason=record.finish_reason,
            seed=record.asked.seed if record.asked else None,
        )
    return said


def _head(opinions: Sequence[Opinion]) -> trajectory_pb2.JudgeOpinion:
    priced = any(opinion.has_price for opinion in opinions)
    first = opinions[0].record
    asked = next((each.record.asked for each in opinions if each.record.asked), Asked())
    return trajectory_pb2.JudgeOpinion(
        model=next((each.model for each in opinions if each.model), ""),
        cached=all(each.cached for each in opinions),
        bytes_left_out=sum(each.bytes_left_out for each in opinions),
        calls=sum(each.usage.calls for each in opinions),
        prompt_tokens=sum(each.usage.prompt_tokens for each in opinions),
        completion_tokens=sum(each.usage.completion_tokens for each in opinions),
        cost=sum(each.usage.cost for each in opinions) if priced else None,
        address=first.address,
        order_seed=first.order_seed,
        temperature=asked.temperature,
        max_completion_tokens=asked.max_completion_tokens,
        refused_parameters=asked.refused,
    )
