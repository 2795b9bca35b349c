"""A version's files: adapter in PEFT's layout, optimizer and state beside it. No pickle.

adapter/adapter_config.json         what PEFT and vLLM load
adapter/adapter_model.safetensors   float32 masters
state/optimizer.safetensors         moments and update counts
state/state.json                    step, random state, what was trained and how
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from podium.core.errors import DataLossError
from safetensors import SafetensorError

ADAPTER_CONFIG = "adapter/adapter_config.json"
ADAPTER_WEIGHTS = "adapter/adapter_model.safetensors"
OPTIMIZER = "state/optimizer.safetensors"
STATE = "state/state.json"
FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """Everything that the next step depends on."""

    step: int
    weights: Mapping[str, torch.Tensor]
    """By their names in the adapter file, float32."""
    adapter_config: Mapping[str, Any]
    optimizer: Mapping[str, torch.Tensor]
    """Empty before the first update."""
    rng: torch.Tensor
    """torch's generator state, uint8."""
    base_model_digest: str
    config_digest: str
    """Of the training specification."""


def encode(checkpoint: Checkpoint) -> dict[str, bytes]:
    """The files by path: the same bytes for the same checkpoint."""
    state = {
        "format": FORMAT,
        "step": checkpoint.step,
        "rng": {"torch": base64.b64encode(bytes(checkpoint.rng.tolist())).decode()},
        "base_model_digest": checkpoint.base_model_digest,
        "config_digest": checkpoint.config_digest,
    }
    return {
        ADAPTER_CONFIG: _json(checkpoint.adapter_config),
        ADAPTER_WEIGHTS: _tensors(checkpoint.weights),
        OPTIMIZER: _tensors(checkpoint.optimizer),
        STATE: _json(state),
    }


def read(folder: Path) -> Checkpoint:
    """The checkpoint whose files lie in `folder`.

    Raises:
        DataLossError: a file is missing or is not what it should be.
    """
    state = _read_json(folder / STATE)
    try:
        if state["format"] != FORMAT:
            raise DataLossError(
                f"{STATE} has format {state['format']}; this trainer reads {FORMAT}"
            )
        rng = base64.b64decode(state["rng"]["torch"], validate=True)
        return Checkpoint(
            step=int(state["step"]),
            weights=_read_tensors(folder / ADAPTER_WEIGHTS),
            adapter_config=_read_json(folder / ADAPTER_CONFIG),
            optimizer=_read_tensors(folder / OPTIMIZER),
            rng=torch.frombuffer(bytearray(rng), dtype=torch.uint8),
            base_model_digest=str(state["base_model_digest"]),
            config_digest=str(state["config_digest"]),
        )
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise DataLossError(f"{STATE} is damaged: {error!r}") from error


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"


def _tensors(tensors: Mapping[str, torch.Tensor]) -> bytes:
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(plain, metadata={"format": "pt"})


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataLossError(f"{path.name} cannot be read: {type(error).__name__}") from error
    if not isinstance(value, dict):
        raise DataLossError(f"{path.name} holds no JSON object")
    return value


def _read_tensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        return safetensors.torch.load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise DataLossError(f"{path.name} cannot be read: {type(error).__name__}") from error
