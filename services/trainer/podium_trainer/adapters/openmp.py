"""Which OpenMP torch computes with."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path


def prefer_intel_openmp() -> bool:
    """Loads Intel's OpenMP, where it is installed, ahead of GNU's, which torch brings.

    Threads of GNU's stand still when another process takes a core from one of them: a step
    of 7 s beside a busy process took 45 s and more with it, and 14 s with Intel's. Call it
    before torch is imported, which then finds the functions already there.

    Returns:
        Whether it is loaded.
    """
    library = Path(sys.prefix, "lib", "libiomp5.so")
    if not library.exists():
        return False
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return True
