"""One console over doubles for the folder; each test finds the doubles as new."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from podium_console.adapters.history import JobHistory
from podium_console.web.overview import Shared
from support import fake_podium as doubles
from support.console import Console, PagedJobs, console
from support.fake_podium import FakePodium, fake_podium
from support.job_records import job


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def services() -> AsyncIterator[FakePodium]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(doubles, "FakeJobs", PagedJobs)
        async with fake_podium() as found:
            yield found


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def served(services: FakePodium) -> AsyncIterator[Console]:
    async with console(services) as found:
        yield found


@pytest.fixture
def fake(services: FakePodium) -> FakePodium:
    """Knows the running job `a`."""
    for double in (services.jobs, services.registry, services.inference, services.rollout):
        vars(double).update(vars(type(double)()))
    services.jobs.known["a"] = job("a", steps=18, done=3)
    return services


@pytest.fixture
def here(fake: FakePodium, served: Console) -> Console:
    served.http.cookies.clear()
    served.app.state.shared = Shared(0.05)
    installation = served.app.state.installation
    installation.history = JobHistory(lambda: installation.job_stub)
    return served
