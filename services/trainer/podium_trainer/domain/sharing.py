"""Which jobs a trainer may hold at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podium.core.errors import ResourceExhaustedError

_NAMED = 5
_ID_CHARACTERS = 1500


@dataclass(frozen=True)
class SlotClaim:
    """What a job takes of a trainer."""

    job_id: str
    base_model: str
    dtype: str
    """What it computes in: `float32`, `bfloat16`."""
    whole: bool
    """Whether all weights train, and not an adapter."""


def check_room(claim: SlotClaim, held: Sequence[SlotClaim], max_jobs: int) -> None:
    """Whether there is room for a further job.

    Args:
        held: the other jobs, the one that was opened first in front.

    Raises:
        ResourceExhaustedError: TRAINER_BUSY, with what is held and what is allowed.
    """
    if not held:
        return
    first = held[0]
    names = _names(held)
    if max_jobs == 1:
        raise busy(f"this trainer has job {first.job_id} open", "slots", held, max_jobs)
    if first.whole:
        raise busy(
            f"job {first.job_id} trains all weights of {first.base_model} here, which takes a "
            "trainer alone; allowed is no other job",
            "trainable",
            held,
            max_jobs,
        )
    if claim.whole:
        raise busy(
            f"got a job that trains all weights, which takes a trainer alone; this one has {names} "
            "open; allowed are adapters (trainable: lora)",
            "trainable",
            held,
            max_jobs,
        )
    if claim.base_model != first.base_model:
        raise busy(
            f"got base model {claim.base_model}; this trainer holds {first.base_model} for "
            f"{names}; allowed are jobs of that one",
            "base_model",
            held,
            max_jobs,
        )
    if claim.dtype != first.dtype:
        raise busy(
            f"got a job that computes in {claim.dtype}; this trainer holds {first.base_model} in "
            f"{first.dtype} for {names}; allowed are jobs of that dtype",
            "dtype",
            held,
            max_jobs,
        )
    if len(held) >= max_jobs:
        raise busy(
            f"this trainer has {names} open; allowed are {max_jobs} jobs", "slots", held, max_jobs
        )


def busy(
    message: str, what: str, held: Sequence[SlotClaim], max_jobs: int
) -> ResourceExhaustedError:
    """TRAINER_BUSY: `what` of the trainer is held."""
    return ResourceExhaustedError(
        message,
        reason="TRAINER_BUSY",
        metadata={
            "job_id": _ids(held),
            "base_model": held[0].base_model,
            "max_jobs": str(max_jobs),
            "held": what,
        },
    )


def _ids(held: Sequence[SlotClaim]) -> str:
    """As many as fit: an error travels in headers, which have a bound."""
    text = ",".join(claim.job_id for claim in held)
    return text if len(text) <= _ID_CHARACTERS else text[: text.rindex(",", 0, _ID_CHARACTERS)]


def _names(held: Sequence[SlotClaim]) -> str:
    names = [claim.job_id for claim in held[:_NAMED]]
    more = len(held) - len(names)
    word = "job" if len(held) == 1 else "jobs"
    return f"{word} {', '.join(names)}" + (f" and {more} more" if more else "")
