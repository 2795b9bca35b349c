"""What the bench says that no step of a processor can beat."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from bench.trainer.bound import Sizes, Work, bound, sizes, work
from bench.trainer.report import bound_lines


def test_a_step_is_its_sampled_tokens_once_and_its_rows_there_and_back() -> None:
    # Two prompts of 5 and 7 tokens, four completions of 3 each: 12 nodes and 24 less what none
    # predicts after.
    found = work(Sizes(blocks=1000, head=100), [5, 7], sampled=24, packed=12 + 24 - 8)
    assert found.generation == 2 * 1100 * 24
    assert found.training == 4 * (1000 * 28 + 100 * (28 - 4 - 6))


def test_a_bound_is_the_work_at_the_rate_of_each_type() -> None:
    found = bound(Work(generation=8e11, training=2e12), 80, 400, whole=60, training=40)
    assert found["generation_seconds"] == pytest.approx(10)
    assert found["training_seconds"] == pytest.approx(5)
    assert found["whole_ratio"] == pytest.approx(4)
    assert found["training_ratio"] == pytest.approx(8)
    said, *more = bound_lines(found | {"no_bfloat16": "this CPU has none"})
    assert "0.80 TFLOP of generation and 2.00 of training, at the 80 and 400 GFLOP/s" in said
    assert "15.0 s; no step is more than 4.00 times faster, nor training more than 8.00" in said
    assert more == ["   products of bfloat16 would allow more: this CPU has none"]
    assert len(list(bound_lines(found | {"no_bfloat16": ""}))) == 1


@pytest.mark.parametrize(("tied", "head"), [(True, 60), (False, 61)])
def test_a_models_sizes_are_read_from_its_files(tmp_path: Path, tied: bool, head: int) -> None:
    held = {
        "model.embed_tokens.weight": torch.zeros(10, 6),
        "model.layers.0.q_proj.weight": torch.zeros(6, 6),
        "model.layers.0.norm.weight": torch.zeros(6),
        "model.layers.1.q_proj.weight": torch.zeros(6, 7),
    }
    save_file(
        held if tied else held | {"lm_head.weight": torch.zeros(61, 1)}, tmp_path / "a.safetensors"
    )
    assert sizes(tmp_path) == Sizes(blocks=78, head=head)
