"""What an adapter's files must be before they go near the engine's weights."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from podium.core.errors import FailedPreconditionError
from safetensors import SafetensorError, safe_open

_PREFIX = "base_model.model."


def check_adapter(base: Path, adapter: Path) -> None:
    """Checks a PEFT LoRA folder against the base model's. Blocking.

    Raises:
        FailedPreconditionError: BAD_ADAPTER: files that are missing or cannot be
            read, layers that the base lacks, other shapes, values that are not
            finite.
    """
    try:
        rank = int(json.loads((adapter / "adapter_config.json").read_text())["r"])
        shapes = _shapes(base)
        layers: dict[str, set[str]] = {}
        with safe_open(adapter / "adapter_model.safetensors", framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - not a dict
                layer, mark, half = name.removeprefix(_PREFIX).rpartition(".lora_")
                if not mark or layer not in shapes:
                    raise _bad(f"the base model has no layer for {name}")
                tensor = weights.get_tensor(name)
                out, into = shapes[layer]
                wanted = (rank, into) if half[0] == "A" else (out, rank)
                if tuple(tensor.shape) != wanted:
                    raise _bad(f"{name} has shape {tuple(tensor.shape)}, not {wanted}")
                if not bool(torch.isfinite(tensor).all()):
                    raise _bad(f"{name} holds values that are not finite")
                layers.setdefault(layer, set()).add(half[0])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise _bad(f"its files cannot be read: {type(error).__name__}") from error
    halved = [layer for layer, halves in layers.items() if halves != {"A", "B"}]
    if halved:
        raise _bad(f"{halved[0]} has one of its two factors")


def _shapes(base: Path) -> dict[str, tuple[int, int]]:
    shapes: dict[str, tuple[int, int]] = {}
    for shard in base.glob("*.safetensors"):
        with safe_open(shard, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - not a dict
                shape = weights.get_slice(name).get_shape()
                if name.endswith(".weight") and len(shape) == 2:
                    shapes[name.removesuffix(".weight")] = (shape[0], shape[1])
    return shapes


def _bad(why: str) -> FailedPreconditionError:
    return FailedPreconditionError(f"the adapter cannot be served: {why}", reason="BAD_ADAPTER")
