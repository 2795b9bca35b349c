"""Temporary folders of the services that tests start."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ENOUGH = 2 << 30


def service_folder(prefix: str) -> Path:
    """A new one, in memory where there is room: databases wait for the disk at each commit.

    A killed process loses nothing there, and no test turns the machine off.
    """
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ENOUGH
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY if roomy else None))
