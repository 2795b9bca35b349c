"""An adapter added to its base model's weights, tensor by tensor. Imports torch on use."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from podium.local.models.recipe import RECIPE_FILE
from podium.local.models.weights import name_in_files, tensors_of, weight_files

if TYPE_CHECKING:
    import torch

_PREFIX = "base_model.model."
_NAMED_TEMPLATES = "additional_chat_templates"
_NOT_BESIDE = frozenset(
    {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".py"}
)
"""Weights, in whatever form, and code."""


def merged_tensors(
    base: Path, adapter: Path | None
) -> Iterator[tuple[Path, str, torch.Tensor, bool]]:
    """Of each tensor of the model in `base` its file, its name, and what it is with the adapter.

    What the adapter changes is float32: (alpha / rank) B A is added in it, and nothing is rounded.
    The last says whether it does.

    Args:
        adapter: a folder in PEFT's layout; None for the base model as it is.

    Raises:
        ValueError: the adapter has layers that the base lacks.
    """
    from safetensors import safe_open

    factors: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    scale = 0.0
    if adapter is not None:
        named, scale = _read_adapter(adapter)
        tensors = tensors_of(base)
        factors = {name_in_files(layer, tensors): pair for layer, pair in named.items()}
    for file in weight_files(base):
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - not a dict
                tensor = weights.get_tensor(name)
                pair = factors.pop(name.removesuffix(".weight"), None)
                if pair is not None:
                    a, b = pair
                    tensor = tensor.float() + (b.float() @ a.float()) * scale
                yield file, name, tensor, pair is not None
    if factors:
        raise ValueError(f"adapter for layers that the base lacks, first {min(factors)}")


def copy_beside(base: Path, target: Path) -> None:
    """Copies what lies beside a model's weights: configuration, tokenizer, templates."""
    for path in base.iterdir():
        weights = path.suffix in _NOT_BESIDE or path.name.endswith(".index.json")
        own = path.name.startswith(".") or path.name == RECIPE_FILE
        if path.is_file() and not weights and not own:
            shutil.copyfile(path, target / path.name)
    if (base / _NAMED_TEMPLATES).is_dir():
        shutil.copytree(base / _NAMED_TEMPLATES, target / _NAMED_TEMPLATES)


def _read_adapter(
    folder: Path,
) -> tuple[dict[str, tuple[torch.Tensor, torch.Tensor]], float]:
    from safetensors import safe_open

    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    rank = config["r"]
    scale = config["lora_alpha"] / (rank**0.5 if config.get("use_rslora") else rank)
    halves: dict[str, dict[str, torch.Tensor]] = {}
    with safe_open(folder / "adapter_model.safetensors", framework="pt") as weights:
        for name in weights.keys():  # noqa: SIM118 - not a dict
            layer, _, half = name.removeprefix(_PREFIX).rpartition(".lora_")
            halves.setdefault(layer, {})[half[0]] = weights.get_tensor(name)
    return {layer: (pair["A"], pair["B"]) for layer, pair in halves.items()}, scale
