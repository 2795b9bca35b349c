"""Two real stacks for the folder, six processes and real vLLM each.

`stack` serves a tiny random model: enough wherever it does not matter what is said, nor whether
environments pay for it. `real_stack` serves the real one, of which a step takes many times as long.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio
from podium.local.launcher import Launcher, LauncherConfig
from podium.local.launcher.config import DEFAULT_MODEL
from support.jobs import ENDED, client_of
from support.otlp import OtlpReceiver
from support.tiny_model import build_tiny_model


@pytest.fixture(scope="package")
def otlp() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver()
    yield receiver
    receiver.stop()


def _config(data_dir: Path, model: str, **environment: str) -> LauncherConfig:
    variables: Mapping[str, str] = {
        "PODIUM_INFERENCE_MAX_NUM_SEQS": "16",
        "PODIUM_INFERENCE_KV_CACHE_BYTES": str(256 << 20),
        **environment,
    }
    return LauncherConfig(
        data_dir=data_dir, port_base=0, model=model, dtype="float32", environment=variables
    )


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Launcher]:
    model = build_tiny_model(tmp_path_factory.mktemp("models") / "tiny")
    async with Launcher(_config(tmp_path_factory.mktemp("stack"), str(model))) as launcher:
        yield launcher


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def real_stack(
    otlp: OtlpReceiver, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Launcher]:
    config = _config(
        tmp_path_factory.mktemp("real"),
        DEFAULT_MODEL,
        OTEL_EXPORTER_OTLP_ENDPOINT=otlp.endpoint,
        OTEL_EXPORTER_OTLP_INSECURE="true",
        OTEL_BSP_SCHEDULE_DELAY="500",
    )
    async with Launcher(config) as launcher:
        yield launcher


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def no_job_left(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """A test that fails halfway does not leave its job to be waited for by the others'."""
    yield
    for name in {"stack", "real_stack"} & set(request.fixturenames):
        stack: Launcher = request.getfixturevalue(name)
        async with client_of(stack) as client:
            left = [job.id async for job in client.jobs.list() if job.state not in ENDED]
            for job_id in left:
                await client.jobs.cancel(job_id)
