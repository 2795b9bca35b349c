"""The chart's renderer and dashboards, for tests that hold them to what runs; ports of a worker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from podium.local.launcher import layout
from support.processes import LAUNCHER_RANGE

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))


@pytest.fixture(scope="session", autouse=True)
def ports_of_this_worker() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "_FREE_RANGE", LAUNCHER_RANGE)
        yield
