"""Scenarios as JSON lines, as the loader reads them without being told how."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from podium.environments.types import Scenario


def write_scenarios(path: Path, scenarios: Iterable[Scenario]) -> None:
    """Writes one `{"id", "split", "data"}` a line; the file appears whole or not at all.

    Raises:
        TypeError, ValueError: data that JSON does not have.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            for scenario in scenarios:
                line = {"id": scenario.id, "split": scenario.split, "data": dict(scenario.data)}
                file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
