"""What float32 means."""

from __future__ import annotations

from pathlib import Path

import torch
from podium_trainer.learner.session import Compute, JobConfig, Session
from support.tiny_policy import training_spec


def test_tf32_is_off_unless_asked_for(small_llama: Path) -> None:
    config = JobConfig("job", "small-llama", training_spec(), 0)
    for compute, expected in ((Compute(tf32=True), "high"), (Compute(), "highest")):
        Session(config, small_llama, "", compute)
        assert torch.get_float32_matmul_precision() == expected
