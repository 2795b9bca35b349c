"""An environment without anything of whoever runs the tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from podium.sdk.connection.addresses import CONTEXT, DATA_DIR, ENVIRONMENT, SERVER_NAME, TLS, TOKEN
from podium.sdk.connection.contexts import FOLDER
from support.fake_kubectl import FakeKubectl


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*ENVIRONMENT.values(), *TLS, SERVER_NAME, TOKEN, CONTEXT, DATA_DIR):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(FOLDER, str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def kubectl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeKubectl:
    """The double is what this process finds on PATH."""
    double = FakeKubectl(tmp_path / "bin")
    for name, value in double.environment.items():
        monkeypatch.setenv(name, value)
    return double
