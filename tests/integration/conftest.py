"""The chart's renderer and dashboards, for tests that hold them to what runs; ports of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from podium.local.launcher import layout
from support.processes import LAUNCHER_RANGE


@pytest.fixture(scope="session", autouse=True)
def ports_of_this_worker() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "_FREE_RANGE", LAUNCHER_RANGE)
        yield
