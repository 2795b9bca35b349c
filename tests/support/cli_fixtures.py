"""Fixtures: the doubles, and somebody who runs commands or logs in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.cli_login import user
from support.cli_user import Cli
from support.fake_podium import FakePodium, fake_podium

__all__ = ["cli", "fake", "user"]


@pytest.fixture
async def fake() -> AsyncIterator[FakePodium]:
    async with fake_podium() as running:
        yield running


@pytest.fixture
def cli(fake: FakePodium, tmp_path: Path) -> Cli:
    return Cli(fake, tmp_path)
