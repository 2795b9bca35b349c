"""The chart's renderer and dashboards, for tests that hold them to what runs; ports of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from podium.local.launcher import layout
from support.one_authority import one_authority
from support.postgres import postgres
from support.processes import claimed

__all__ = ["one_authority", "postgres"]


@pytest.fixture(scope="session", autouse=True)
def ports_of_this_worker() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        # Of which its stacks take theirs: a port is taken seconds after it was found free.
        patch.setattr(layout, "_FREE_RANGE", claimed(range(20000, 32000), 500))
        yield
