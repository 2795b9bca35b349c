"""What every unit test has: whoever waits before asking again waits a hundredth as long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from podium.cli.job import file_logs
from podium.kit.rpc import client_config, retry
from podium.sdk import backend


@pytest.fixture(scope="session", autouse=True)
def asked_again_soon() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(client_config._RETRY_POLICY, "initialBackoff", "0.01s")
        patch.setattr(retry, "_FIRST_SECONDS", 0.001)
        patch.setattr(backend, "_POLL_SECONDS", 0.01)
        patch.setattr(file_logs, "_POLL_SECONDS", 0.01)
        yield
