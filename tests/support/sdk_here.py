"""An environment without anything of whoever runs the tests, and an installation of doubles."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from podium.sdk.connection.addresses import CONTEXT, DATA_DIR, ENVIRONMENT, SERVER_NAME, TLS, TOKEN
from podium.sdk.connection.contexts import FOLDER
from support.fake_kubectl import FakeKubectl
from support.fake_podium import FakePodium, fake_podium


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


@pytest.fixture
def served() -> Iterator[FakePodium]:
    """The doubles on a loop of another thread, as a synchronous program sees them."""
    ready: Future[FakePodium] = Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with fake_podium() as running:
            ready.set_result(running)
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    yield ready.result(timeout=120)
    loop.call_soon_threadsafe(stop.set)
    thread.join(timeout=120)
    loop.close()
