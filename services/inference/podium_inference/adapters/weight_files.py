"""What a version's files must be before they go near the engine's weights."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.local.models import name_in_files, tensors_of, unread, weight_files
from safetensors import SafetensorError, safe_open

_PREFIX = "base_model.model."


def is_adapter(folder: Path) -> bool:
    """Whether the folder holds an adapter, in PEFT's layout, and not whole weights."""
    return (folder / "adapter_config.json").exists()


def check_weights(base: Path, folder: Path, *, max_rank: int = 0) -> None:
    """Checks an adapter, or whole weights, against the base model's files. Blocking.

    Args:
        max_rank: an adapter's greatest; 0 for any.

    Raises:
        FailedPreconditionError: BAD_ADAPTER or BAD_WEIGHTS: files that are missing or
            cannot be read, layers that the base lacks, other shapes, values that are not
            finite.
    """
    if is_adapter(folder):
        check_adapter(base, folder, max_rank=max_rank)
    else:
        check_model(base, folder)


def check_model(base: Path, folder: Path) -> None:
    """Checks whole weights. Blocking.

    Raises:
        FailedPreconditionError: BAD_WEIGHTS, as `check_weights`.
    """
    try:
        wanted, found = _all_shapes(base), _all_shapes(folder)
        needless = unread(base, wanted.keys() - found.keys())
        for name in sorted((wanted.keys() | found.keys()) - needless):
            if wanted.get(name) != found.get(name):
                raise _bad_model(
                    f"{name} has shape {found.get(name)}; the base model's is {wanted.get(name)}"
                )
        for shard in weight_files(folder):
            with safe_open(shard, framework="pt") as weights:
                for name in weights.keys():  # noqa: SIM118 - not a dict
                    if not bool(torch.isfinite(weights.get_tensor(name)).all()):
                        raise _bad_model(f"{name} holds values that are not finite")
    except (OSError, ValueError, SafetensorError, InvalidArgumentError) as error:
        raise _bad_model(f"its files cannot be read: {type(error).__name__}") from error


def check_adapter(base: Path, adapter: Path, *, max_rank: int = 0) -> None:
    """Checks a PEFT LoRA folder against the base model's. Blocking.

    Raises:
        FailedPreconditionError: BAD_ADAPTER: files that are missing or cannot be
            read, layers that the base lacks, other shapes, values that are not
            finite, a rank above `max_rank`.
    """
    try:
        rank = int(json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))["r"])
        if max_rank and rank > max_rank:
            what = f"its rank is {rank}, and this pool serves ranks up to {max_rank}"
            raise _bad(f"{what} (PODIUM_INFERENCE_MAX_LORA_RANK)")
        tensors = _all_shapes(base)
        layers: dict[str, set[str]] = {}
        with safe_open(adapter / "adapter_model.safetensors", framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - not a dict
                layer, mark, half = name.removeprefix(_PREFIX).rpartition(".lora_")
                layer = name_in_files(layer, tensors)
                shape = tensors.get(f"{layer}.weight", ())
                if not mark or len(shape) != 2:
                    raise _bad(f"the base model has no layer for {name}")
                tensor = weights.get_tensor(name)
                out, into = shape
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


def _all_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    return {name: tensor.shape for name, tensor in tensors_of(folder).items()}


def _bad_model(why: str) -> FailedPreconditionError:
    return FailedPreconditionError(f"the weights cannot be served: {why}", reason="BAD_WEIGHTS")


def _bad(why: str) -> FailedPreconditionError:
    return FailedPreconditionError(f"the adapter cannot be served: {why}", reason="BAD_ADAPTER")
