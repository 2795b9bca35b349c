"""One merged and one adapter pool for the folder, each over a tiny random model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from podium.kit.registry_client import RegistryClient
from podium.kit.rpc import connect
from podium.local.launcher import Launcher, LauncherConfig
from support.pool import TinyPool
from support.tiny_model import build_tiny_model


@pytest.fixture(scope="package")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@asynccontextmanager
async def _pool(data_dir: Path, model: Path, mode: str) -> AsyncIterator[TinyPool]:
    config = LauncherConfig(
        data_dir=data_dir,
        port_base=0,
        services=("registry", "inference"),
        model=str(model),
        dtype="float32",
        weight_mode=mode,
        environment={"PODIUM_INFERENCE_MAX_NUM_SEQS": "16"},
    )
    async with Launcher(config) as stack:
        registry = RegistryClient(stack.address("registry"))
        channel = connect(stack.address("inference"))
        try:
            yield TinyPool(stack, model, channel, registry)
        finally:
            await channel.close()
            await registry.close()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def merged(
    tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[TinyPool]:
    async with _pool(tmp_path_factory.mktemp("merged"), tiny_model, "merged") as pool:
        yield pool


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def shared(
    tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[TinyPool]:
    async with _pool(tmp_path_factory.mktemp("adapters"), tiny_model, "adapter") as pool:
        yield pool
