from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from podium_trainer.learner.model import Policy
from podium_trainer.worker import Worker
from support.kept_versions import KeptVersions
from support.shared_jobs import a_worker
from support.tiny_policy import build_small_llama, move_adapter, training_spec

# Two threads on a model of this size only wait for each other.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def small_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small_llama(tmp_path_factory.mktemp("small-llama"))


@pytest.fixture(scope="session")
def policy(small_llama: Path) -> Policy:
    """Float32, with an adapter that has moved. Tests leave its weights as they are."""
    training = training_spec(lora={"rank": 4, "alpha": 8})
    made = Policy(small_llama, "small-llama", training, seed=0, dtype=torch.float32)
    move_adapter(made)
    return made


@pytest_asyncio.fixture
async def kept() -> KeptVersions:
    return KeptVersions()


@pytest_asyncio.fixture
async def shared(kept: KeptVersions) -> AsyncIterator[Worker]:
    """A trainer that four jobs may share."""
    worker = a_worker(kept, 4)
    yield worker
    for claim in list(worker.held):
        await worker.close(claim.job_id)
    await worker.stop()
