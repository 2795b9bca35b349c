from __future__ import annotations

from pathlib import Path

import pytest
import torch
from podium_trainer.learner.model import Policy
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
