"""Fixtures of the controller's tests on fakes: a fleet in memory and a controller a test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.memory_fleet import MemoryClient, MemoryFleet, memory_controller


@pytest.fixture
def fleet() -> MemoryFleet:
    return MemoryFleet()


@pytest.fixture
async def client(fleet: MemoryFleet) -> AsyncIterator[MemoryClient]:
    async with memory_controller(fleet) as connected:
        yield connected
