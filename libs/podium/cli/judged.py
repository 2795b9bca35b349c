"""What judges gave an episode and how they were asked, as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from podium.cli.safe_text import one_line
from podium.types.v1 import trajectory_pb2 as pb

_DIGITS = 12
"""Of a digest, enough to tell prompts apart."""


def opinions(trajectory: pb.Trajectory) -> Iterator[str]:
    """A line for each judge: its score and place, the model and where, and how it was asked."""
    for judgement in trajectory.judgements:
        for opinion in judgement.opinions:
            by = f"{judgement.part}: {opinion.model or 'no model'} at {opinion.address or '?'}"
            yield one_line(f"{by}: {_verdict(opinion)}; {', '.join(_asked(opinion))}".rstrip("; "))


def _verdict(opinion: pb.JudgeOpinion) -> str:
    if opinion.failure:
        return f"does not count, {opinion.failure}"
    # Of one attempt: no other stands in a listed trajectory.
    attempt = opinion.attempts[0] if opinion.attempts else pb.JudgedAttempt()
    return f"{attempt.score:g}" + (f", place {attempt.place}" if attempt.place else "")


def _asked(opinion: pb.JudgeOpinion) -> Iterator[str]:
    alone = opinion.attempts[0] if opinion.attempts else pb.JudgedAttempt()
    if opinion.HasField("temperature"):
        yield f"temperature {opinion.temperature:g}"
    for where in (opinion, alone):
        if where.HasField("seed"):
            yield f"seed {where.seed}"
    if ended := opinion.finish_reason or alone.finish_reason:
        yield f"ended by {ended}"
    if prompt := opinion.prompt_digest or alone.prompt_digest:
        yield f"prompt {prompt[:_DIGITS]}"
    if opinion.order_seed:
        yield f"order of {opinion.order_seed}"
    if opinion.refused_parameters:
        yield f"refuses {' and '.join(opinion.refused_parameters)}"
    if opinion.cached:
        yield "known already"
