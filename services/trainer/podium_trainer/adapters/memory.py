"""The C heap and a GPU's, told what a training step is like."""

from __future__ import annotations

import ctypes
import os
from collections.abc import MutableMapping

_GPU_HEAP = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""torch's variables for it, the newer one first."""

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8


def keep_freed_memory() -> bool:
    """Lets glibc reuse freed blocks instead of returning them to the kernel.

    Every row allocates and frees the same gigabytes; by default each large block is a
    fresh mapping whose pages fault in one by one (a quarter of a million faults a row of
    1000 tokens, measured). Call it before the first thread starts.

    Returns:
        Whether this C library took the settings.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    options = ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1))
    taken = [mallopt(option, value) for option, value in options]
    return all(taken)


def grow_gpu_segments(environment: MutableMapping[str, str] = os.environ) -> None:
    """Has torch grow what it takes of a GPU in place of adding blocks, unless it was told how.

    Rows of many sizes leave holes between blocks that no later row fits into, until the memory is
    full of them. Call it before torch is imported.
    """
    if not any(name in environment for name in _GPU_HEAP):
        environment[_GPU_HEAP[0]] = "expandable_segments:True"
