from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from support.fake_judge import FakeJudge, fake_judge


@pytest.fixture
def judge() -> Iterator[FakeJudge]:
    with fake_judge() as server:
        yield server


@pytest.fixture
def other_judge() -> Iterator[FakeJudge]:
    with fake_judge() as server:
        yield server


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    # The doubles speak plain HTTP: reading every certificate authority would cost most of a test.
    async with httpx.AsyncClient(timeout=None, verify=False) as http:
        yield http
