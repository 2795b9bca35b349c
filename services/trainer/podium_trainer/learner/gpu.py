"""What a GPU refuses, in words for whoever asked, and whether it may go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from podium.core.errors import FailedPreconditionError, UnavailableError

_MORE = (
    "lower the job's training.max_row_tokens or the trainer's ROW_TOKENS, set"
    " training.gradient_checkpointing, or leave the trainer more of the GPU"
)


class GpuMemoryError(FailedPreconditionError):
    """A GPU's memory did not hold what was asked for; asked again, it will not either."""


class GpuLostError(UnavailableError):
    """A GPU failed. CUDA refuses this process everything from then on: it must end."""


def refusal(device: str) -> str:
    """Why this machine has no such device: what came and what is allowed. Empty if it has.

    Args:
        device: `auto`, `cpu` or `cuda`.
    """
    if device != "cuda" or torch.cuda.is_available():
        return ""
    try:
        torch.empty(0, device="cuda")
    except (RuntimeError, AssertionError) as error:
        # Such as a driver that is too old, or none in this container.
        why = _first(error)
    else:
        why = f"it has {torch.cuda.device_count()} of them"
    return f"got cuda, and torch can use no GPU here: {why}; allowed are auto, cpu"


@contextmanager
def with_reasons() -> Iterator[None]:
    """Within the block torch's errors of a GPU are errors with a reason.

    Raises:
        GpuMemoryError: GPU_OUT_OF_MEMORY.
        GpuLostError: GPU_FAILED.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise GpuMemoryError(f"{_first(error)}; {_MORE}", reason="GPU_OUT_OF_MEMORY") from error
    except torch.AcceleratorError as error:
        why = f"the trainer begins anew: {_first(error)}"
        raise GpuLostError(why, reason="GPU_FAILED") from error


def _first(error: Exception) -> str:
    """The first of its lines: below are hints for programmers."""
    lines = str(error).splitlines()
    # How much was asked for, had and held, and by which processes; then how torch could be set.
    return lines[0].partition(" If reserved but unallocated")[0] if lines else type(error).__name__
