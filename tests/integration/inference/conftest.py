"""One merged and one adapter pool for the folder, each over a tiny random model.

The one of adapters asks its callers for a token, the other asks nobody.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from podium.kit.registry_client import RegistryClient
from podium.kit.rpc import connect
from podium.local.launcher import Launcher, LauncherConfig
from support.pool import OF_THE_VARIABLE, TinyPool
from support.tiny_model import build_tiny_model


@pytest.fixture(scope="package")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@asynccontextmanager
async def _pool(
    data_dir: Path, model: Path, mode: str, *, auth: bool = False
) -> AsyncIterator[TinyPool]:
    config = LauncherConfig(
        data_dir=data_dir,
        port_base=0,
        services=("registry", "inference"),
        model=str(model),
        dtype="float32",
        weight_mode=mode,
        auth=auth,
        environment={
            "PODIUM_INFERENCE_MAX_NUM_SEQS": "16",
            "PODIUM_INFERENCE_KV_CACHE_BYTES": str(256 << 20),
            **({"VLLM_API_KEY": OF_THE_VARIABLE} if auth else {}),
        },
    )
    async with Launcher(config) as stack:
        token = (data_dir / "token").read_text().strip() if auth else ""
        registry = RegistryClient(stack.address("registry"), token=token)
        channel = connect(stack.address("inference"), token=token)
        try:
            yield TinyPool(stack, model, channel, registry, token)
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
    folder = tmp_path_factory.mktemp("adapters")
    async with _pool(folder, tiny_model, "adapter", auth=True) as pool:
        yield pool
