"""What vLLM's worker does for a policy, with the worker's own class and no engine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

pytest.importorskip("vllm")


class Runner:
    """A model of one layer, whose weights are what came last."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(2, 2, bias=False)
        self.config_there: Any = None

    def get_model(self) -> torch.nn.Module:
        return self.model

    def reload_weights(self, weights_iterator: Iterable[tuple[str, torch.Tensor]]) -> None:
        from vllm.config import get_current_vllm_config

        self.config_there = get_current_vllm_config()
        self.model.load_state_dict(dict(weights_iterator))


def test_weights_are_exchanged_under_the_engines_configuration(tmp_path: Path) -> None:
    """A GPU's kernels for experts and latent attention are set up anew, and ask for it."""
    from podium_inference.adapters.worker_extension import PolicyWorker
    from vllm.config import VllmConfig
    from vllm.v1.worker.gpu_worker import Worker

    class Extended(Worker, PolicyWorker):  # type: ignore[misc]
        """As `worker_extension_cls` makes it."""

        def __init__(self) -> None:
            self.vllm_config = VllmConfig()
            self.model_runner = Runner()

    save_file({"weight": torch.full((2, 2), 3.0)}, tmp_path / "model.safetensors")
    worker = Extended()
    assert worker.podium_set_policy(str(tmp_path), "") == ""
    assert worker.model_runner.config_there is worker.vllm_config
    assert worker.model_runner.model.weight.tolist() == [[3.0, 3.0], [3.0, 3.0]]
