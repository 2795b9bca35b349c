"""An HTTP client reads all authorities that it trusts as it is made: here there is one."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest


@pytest.fixture(scope="session", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test speaks TLS to the world, nor do the processes that it starts."""
    end = "-----END CERTIFICATE-----\n"
    bundle = tmp_path_factory.mktemp("authorities") / "one.pem"
    bundle.write_text(Path(certifi.where()).read_text().partition(end)[0] + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(bundle))
        # A client that is to read no variables asks these.
        paths = ssl.get_default_verify_paths()._replace(
            cafile=str(bundle), capath=None, openssl_cafile=str(bundle), openssl_capath=""
        )
        patch.setattr(ssl, "get_default_verify_paths", lambda: paths)
        patch.setattr(certifi, "where", lambda: str(bundle))
        yield
