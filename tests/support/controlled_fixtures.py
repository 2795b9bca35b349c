"""Fixtures of the controller's tests: a registry a module, a fleet and a controller a test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from support.controlled import Client, running_controller
from support.fleet import Fleet, fleet_of_doubles
from support.processes import RegistryProcess, running_registry


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryProcess]:
    yield from running_registry()


@pytest.fixture
async def fleet(registry: RegistryProcess) -> AsyncIterator[Fleet]:
    async with fleet_of_doubles(registry) as running:
        yield running


@pytest.fixture
async def client(fleet: Fleet) -> AsyncIterator[Client]:
    async with running_controller(fleet) as connected:
        yield connected
