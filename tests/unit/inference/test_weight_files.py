"""An adapter is held against its base model's files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from podium.core.errors import FailedPreconditionError
from podium.local.models import weights
from podium_inference.adapters.weight_files import check_adapter
from safetensors.torch import save_file

LAYER = "model.layers.0.self_attn.q_proj"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    held = {f"{LAYER}.weight": torch.ones(6, 4), "model.norm.weight": torch.ones(4)}
    save_file(held, folder / "model.safetensors")
    return folder


def an_adapter(folder: Path, layer: str) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": 2}))
    name = f"base_model.model.{layer}"
    factors = {f"{name}.lora_A.weight": torch.ones(2, 4), f"{name}.lora_B.weight": torch.ones(6, 2)}
    save_file(factors, folder / "adapter_model.safetensors")
    return folder


def test_each_header_of_the_base_is_read_once(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are millions of bytes in a mixture of experts, and adapters are loaded at each step."""
    read: list[Path] = []
    stored = weights.stored_tensors
    monkeypatch.setattr(weights, "stored_tensors", lambda file: read.append(file) or stored(file))
    check_adapter(base, an_adapter(tmp_path / "adapter", LAYER))
    assert read == [base / "model.safetensors"]


@pytest.mark.parametrize("layer", ["model.layers.9.self_attn.q_proj", "model.norm", LAYER[:-1]])
def test_an_adapter_for_what_is_no_layer_of_the_base_is_refused(
    layer: str, base: Path, tmp_path: Path
) -> None:
    with pytest.raises(FailedPreconditionError, match="the base model has no layer for") as caught:
        check_adapter(base, an_adapter(tmp_path / "adapter", layer))
    assert caught.value.reason == "BAD_ADAPTER"
