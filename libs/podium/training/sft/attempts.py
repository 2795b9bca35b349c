"""Attempts as rows of a file to fine-tune on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from podium.training.sft.files import File, Source
from podium.training.trajectories import Trajectory


def rows_of(rows: Iterable[Trajectory | Mapping[str, Any]] | File) -> Source:
    """The file, or the rows, each attempt as its messages and tools."""
    if isinstance(rows, str | os.PathLike):
        return rows
    return [
        {"messages": each.messages(), "tools": each.offered_tools() or None}
        if isinstance(each, Trajectory)
        else each
        for each in rows
    ]
