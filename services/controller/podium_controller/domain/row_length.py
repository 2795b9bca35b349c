"""Whether the trainer can hold the attempts of a job: `training.max_row_tokens`."""

from __future__ import annotations

from collections.abc import Mapping

from podium.core.errors import Violation
from podium.types.v1 import spec_pb2

OVER_MAX_ROW_TOKENS = "OVER_MAX_ROW_TOKENS"

_FIELD = "job.spec.training.max_row_tokens"
_LEAST_DEFAULT = 4096
"""A row holds several attempts, so that it is worth having above a small window too."""

_COUNT = "train/trajectories_over_max_row_tokens"
_LONGEST = "train/trajectory_tokens_max"


def complete_row_length(spec: spec_pb2.JobSpec, window: int) -> None:
    """Writes the default into `spec`: nothing that fits the pool's context is left out.

    Args:
        window: tokens of the widest context of the pools that serve the job; 0 if unknown.
    """
    if not spec.training.HasField("max_row_tokens"):
        spec.training.max_row_tokens = max(_LEAST_DEFAULT, window)


def row_length_violations(spec: spec_pb2.JobSpec) -> list[Violation]:
    """A prompt and an answer of the greatest length must fit; the last token needs no place."""
    least = spec.rollout.sampling.max_tokens
    got = spec.training.max_row_tokens
    # A client's agents bring their own sampling.
    if not spec.training.HasField("max_row_tokens") or spec.HasField("client") or got >= least:
        return []
    text = (
        f"got {got}; allowed are numbers from {least}, job.spec.rollout.sampling.max_tokens, or"
        " none for the pool's context window: a longer attempt does not train"
    )
    return [Violation(_FIELD, text)]


def row_length_warnings(spec: spec_pb2.JobSpec, window: int) -> list[str]:
    """What `max_row_tokens` may leave out of the loss, where a completed job asks for less."""
    got = spec.training.max_row_tokens
    # The last token of an attempt predicts nothing and has no place in a row.
    if got >= window - 1:
        return []
    return [
        f"{_FIELD}: got {got}; the pool's context window is {window} tokens, and an attempt of"
        f" more than {got} leaves the loss"
    ]


def left_out(metrics: Mapping[str, float], spec: spec_pb2.JobSpec) -> str:
    """What to tell people of a step's attempts that were too long to train; or nothing."""
    count = int(metrics.get(_COUNT, 0))
    if not count:
        return ""
    attempts = "1 attempt is" if count == 1 else f"{count} attempts are"
    return (
        f"{attempts} left out of the loss, longer than training.max_row_tokens,"
        f" {spec.training.max_row_tokens}; the longest has {int(metrics.get(_LONGEST, 0))} tokens"
        f" ({OVER_MAX_ROW_TOKENS})"
    )
