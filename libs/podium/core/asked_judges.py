"""How a judge was asked about one attempt."""

from __future__ import annotations

from dataclasses import dataclass

from podium.types.v1 import trajectory_pb2 as pb


@dataclass(frozen=True)
class Request:
    """What the last request was, and how its answer ended."""

    seed: int | None
    """Of the sampling; None where none was sent."""
    finish_reason: str
    prompt_digest: str


def request_about(opinion: pb.JudgeOpinion) -> tuple[pb.JudgedAttempt, Request]:
    """What a listed trajectory's opinion gave the attempt, and its request.

    No other attempt stands in such an opinion, and none where it does not count. One request is of
    all attempts, and told with the opinion, or of each, and told with the attempt.
    """
    alone = opinion.attempts[0] if opinion.attempts else pb.JudgedAttempt()
    seeds = [each.seed for each in (opinion, alone) if each.HasField("seed")]
    return alone, Request(
        seeds[0] if seeds else None,
        opinion.finish_reason or alone.finish_reason,
        opinion.prompt_digest or alone.prompt_digest,
    )
