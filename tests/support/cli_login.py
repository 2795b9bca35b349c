"""Somebody who logs in with the command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from support.cli import Result, invoke
from support.fake_kubectl import FakeKubectl
from support.fake_podium import FakePodium, fake_podium

TOKEN = "let-me-in"


class User:
    """Somebody with a folder of their own, an installation and a cluster."""

    def __init__(self, fake: FakePodium, kubectl: FakeKubectl, folder: Path) -> None:
        self.fake = fake
        self.kubectl = kubectl
        self.folder = folder
        self.config = folder / "config"

    async def __call__(self, *arguments: str, stdin: str = "", **extra: str) -> Result:
        environment = {**self.kubectl.environment, **extra}
        return await invoke(*arguments, cwd=self.folder, environment=environment, stdin=stdin)

    async def login(self, name: str = "lab", *arguments: str, stdin: str = TOKEN) -> Result:
        address = ("--address", self.fake.address, "--token-stdin")
        return await self("login", name, *(arguments or address), stdin=stdin)

    def saved(self) -> dict[str, object]:
        file = self.config / "contexts.yaml"
        read: dict[str, object] = yaml.safe_load(file.read_text()) if file.exists() else {}
        return read


@pytest.fixture
async def user(tmp_path: Path) -> AsyncIterator[User]:
    tokens = tmp_path / "accepted"
    tokens.write_text(TOKEN)
    kubectl = FakeKubectl(tmp_path / "bin")
    async with fake_podium(auth_tokens_file=tokens) as fake:
        kubectl.play_release(fake.address, TOKEN)
        yield User(fake, kubectl, tmp_path)
