"""What torch is told of a GPU's memory before it is imported."""

from __future__ import annotations

import pytest
from podium_trainer.adapters.memory import grow_gpu_segments


def test_a_gpus_segments_grow_unless_somebody_said_otherwise() -> None:
    found: dict[str, str] = {}
    grow_gpu_segments(found)
    assert found == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_what_an_operator_told_torch_stays(name: str) -> None:
    """By whichever of torch's two names for it."""
    found = {name: "max_split_size_mb:128"}
    grow_gpu_segments(found)
    assert found == {name: "max_split_size_mb:128"}
