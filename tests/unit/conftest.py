"""What every unit test has: short waits before asking again, and few authorities to read."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from podium.cli.job import file_logs
from podium.kit.rpc import client_config, retry
from podium.sdk import backend, jobs
from support.one_authority import one_authority

__all__ = ["one_authority"]


@pytest.fixture(scope="session", autouse=True)
def garbage_is_looked_for_less_often() -> Iterator[None]:
    """Every 700 new objects, as Python does, takes a thirtieth of the tests' time."""
    before = gc.get_threshold()
    gc.set_threshold(20_000, *before[1:])
    yield
    gc.set_threshold(*before)


@pytest.fixture(scope="session", autouse=True)
def asked_again_soon() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(client_config._RETRY_POLICY, "initialBackoff", "0.01s")
        patch.setattr(retry, "_FIRST_SECONDS", 0.001)
        patch.setattr(jobs, "_FIRST_DELAY", 0.001)
        patch.setattr(backend, "_POLL_SECONDS", 0.01)
        patch.setattr(file_logs, "_POLL_SECONDS", 0.01)
        yield
