"""What was told, kept in a file where a tracker cannot be asked."""

from __future__ import annotations

import json
import os
from pathlib import Path

from podium_tracking.domain.trackers import Delivered


class CursorFile:
    """Written whole: a crash leaves the last one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Delivered:
        """What was written last; nothing when there is none that can be read."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            return Delivered(int(found["sequence"]), int(found["step"]), bool(found["finished"]))
        except (OSError, ValueError, KeyError, TypeError):
            return Delivered()

    def write(self, delivered: Delivered) -> None:
        """Replaces it."""
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(vars(delivered)), encoding="utf-8")
        os.replace(draft, self._path)
