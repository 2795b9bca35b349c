"""What every unit test has: short waits before asking again, and few authorities to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import certifi
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


@pytest.fixture(scope="session", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No unit test speaks TLS to the world, and every HTTP client reads all authorities first."""
    end = "-----END CERTIFICATE-----\n"
    bundle = tmp_path_factory.mktemp("authorities") / "one.pem"
    bundle.write_text(Path(certifi.where()).read_text().partition(end)[0] + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(bundle))
        yield
