"""One real stack for the whole folder: six processes, real vLLM, the real model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from podium.local.launcher import Launcher, LauncherConfig
from support.jobs import ENDED, client_of
from support.otlp import OtlpReceiver


@pytest.fixture(scope="package")
def otlp() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver()
    yield receiver
    receiver.stop()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def stack(
    otlp: OtlpReceiver, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Launcher]:
    data_dir: Path = tmp_path_factory.mktemp("stack")
    config = LauncherConfig(
        data_dir=data_dir,
        port_base=0,
        environment={
            "OTEL_EXPORTER_OTLP_ENDPOINT": otlp.endpoint,
            "OTEL_EXPORTER_OTLP_INSECURE": "true",
            "OTEL_BSP_SCHEDULE_DELAY": "500",
        },
    )
    async with Launcher(config) as launcher:
        yield launcher


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def no_job_left(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """A test that fails halfway does not leave its job to be waited for by the others'."""
    yield
    if "stack" not in request.fixturenames:
        return
    stack: Launcher = request.getfixturevalue("stack")
    async with client_of(stack) as client:
        left = [job.id async for job in client.jobs.list() if job.state not in ENDED]
        for job_id in left:
            await client.jobs.cancel(job_id)
