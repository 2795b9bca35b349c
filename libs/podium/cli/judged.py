"""What judges gave an episode and how they were asked, as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from podium.cli.safe_text import one_line
from podium.core.asked_judges import Request, request_about
from podium.types.v1 import trajectory_pb2 as pb

_DIGITS = 12
"""Of a digest, enough to tell prompts apart."""


def opinions(trajectory: pb.Trajectory) -> Iterator[str]:
    """A line for each judge: its score and place, the model and where, and how it was asked."""
    for judgement in trajectory.judgements:
        for opinion in judgement.opinions:
            by = f"{judgement.part}: {opinion.model or 'no model'} at {opinion.address or '?'}"
            attempt, request = request_about(opinion)
            asked = ", ".join(_asked(opinion, request))
            yield one_line(f"{by}: {_verdict(opinion, attempt)}; {asked}".rstrip("; "))


def _verdict(opinion: pb.JudgeOpinion, attempt: pb.JudgedAttempt) -> str:
    if opinion.failure:
        return f"does not count, {opinion.failure}"
    return f"{attempt.score:g}" + (f", place {attempt.place}" if attempt.place else "")


def _asked(opinion: pb.JudgeOpinion, request: Request) -> Iterator[str]:
    if opinion.HasField("temperature"):
        yield f"temperature {opinion.temperature:g}"
    if request.seed is not None:
        yield f"seed {request.seed}"
    if request.finish_reason:
        yield f"ended by {request.finish_reason}"
    if request.prompt_digest:
        yield f"prompt {request.prompt_digest[:_DIGITS]}"
    if opinion.order_seed:
        yield f"order of {opinion.order_seed}"
    if opinion.refused_parameters:
        yield f"refuses {' and '.join(opinion.refused_parameters)}"
    if opinion.cached:
        yield "known already"
