"""Numbers that others' programs gave, in tests/golden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def golden(name: str) -> Any:
    """The content of a golden file."""
    return json.loads((Path(__file__).parents[1] / "golden" / name).read_text())
