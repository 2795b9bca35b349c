"""Which logits an adapter of the output embedding is added to, and which adapters are ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from podium_inference.adapters.prompt_logits import _wrap, adapts_head
from safetensors.torch import save_file


@pytest.mark.parametrize(
    ("layer", "head"),
    [
        ("model.layers.0.self_attn.q_proj", False),
        ("model.layers.1.mlp.down_proj", False),
        ("lm_head", True),
        ("model.embed_tokens", True),
    ],
)
def test_only_an_adapter_of_the_embeddings_is_one(tmp_path: Path, layer: str, head: bool) -> None:
    name = f"base_model.model.{layer}.lora_A.weight"
    save_file({name: torch.zeros(1, 1)}, tmp_path / "adapter_model.safetensors")
    assert adapts_head(tmp_path) is head


@pytest.mark.parametrize(("rows", "told"), [(3, "adapted"), (137, "plain head")])
def test_what_is_not_a_row_for_each_request_is_left_plain(rows: int, told: str) -> None:
    head = SimpleNamespace(base_layer="plain head")
    module = SimpleNamespace(
        punica_wrapper=SimpleNamespace(sampler_indices=torch.zeros(3)),
        base_layer=SimpleNamespace(_get_logits=lambda hidden, head, bias: head),
        _get_logits=lambda hidden, head, bias: "adapted",
    )
    _wrap(module)
    assert module._get_logits(torch.zeros(rows, 2), head, None) == told
