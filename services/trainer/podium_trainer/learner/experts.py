"""Adapters of a mixture's experts: fused where they train, one by one in files.

Transformers holds the experts of a layer as two stacks, E of them, with the gate and the up
projection in one; PEFT adapts a stack as a whole (`target_parameters`). The files of the model
have a matrix a projection and expert, and what serves knows adapters by these names. So a version
holds a factor pair a matrix: expert e's part of a stack's factors, of which gate and up share A.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from podium.core.errors import DataLossError, InvalidArgumentError, Violation
from podium.local.models import weight_files
from safetensors import safe_open
from torch.distributed.tensor import DTensor

EXPERTS = "experts"
"""What a job calls them among its target modules."""
STACKS = ("gate_up_proj", "down_proj")

_NAMES = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))
"""Of gate, up and down in a model's files."""
_IN_FILES = re.compile(r"(.*\.experts)\.0\.(gate_proj|w1)\.weight")
_LAYER = re.compile(r"\.layers\.(\d+)\.")
PREFIX = "base_model.model."
"""What PEFT puts before the name of a layer."""


@dataclass(frozen=True)
class Stacks:
    """The experts of one layer."""

    module: str
    """Where Transformers has them."""
    files: str
    """Where the model's files have them, before an expert's number."""
    names: tuple[str, str, str]
    """Of gate, up and down there."""
    experts: int


@dataclass(frozen=True)
class Experts:
    """Of a model whose experts train; of no layers where they do not."""

    layers: tuple[Stacks, ...] = ()

    @property
    def modules(self) -> set[str]:
        """The projections' names, as an adapter's configuration lists what it adapts."""
        return {name for layer in self.layers for name in layer.names}

    def apart(self, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """An adapter's weights as its file has them; others go through."""
        left = dict(weights)
        for layer in self.layers:
            (up_a, up_b), (down_a, down_b) = (
                tuple(left.pop(name) for name in _factors(layer, stack)) for stack in STACKS
            )
            count = layer.experts
            for expert in range(count):
                gate, up = _of(up_b, expert, count).chunk(2)
                into = up_a.chunk(count)[expert]
                pairs = (
                    (into, gate),
                    (into, up),
                    (down_a.chunk(count)[expert], _of(down_b, expert, count)),
                )
                for name, pair in zip(layer.names, pairs, strict=True):
                    for half, factor in zip("AB", pair, strict=True):
                        # Gate and up are the same tensor to safetensors unless they are copied.
                        left[_file_name(layer, expert, name, half)] = factor.clone()
        return left

    def together(self, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The reverse of `apart`.

        Raises:
            DataLossError: a factor is missing, or gate and up do not share theirs.
        """
        left = dict(weights)
        for layer in self.layers:
            try:
                a, b = (
                    [
                        [left.pop(_file_name(layer, expert, name, half)) for name in layer.names]
                        for expert in range(layer.experts)
                    ]
                    for half in "AB"
                )
            except KeyError as error:
                raise DataLossError(f"the adapter lacks {error}") from error
            # Only the first process has numbers.
            if not all(gate.is_meta or torch.equal(gate, up) for gate, up, _ in a):
                raise DataLossError(f"gate and up of {layer.files} do not share their factor A")
            (up_a, up_b), (down_a, down_b) = (_factors(layer, stack) for stack in STACKS)
            left[up_a] = torch.cat([gate for gate, _, _ in a])
            left[down_a] = torch.cat([down for _, _, down in a])
            left[up_b] = _stacked([torch.cat([gate, up]) for gate, up, _ in b])
            left[down_b] = _stacked([down for _, _, down in b])
        return left


def find_experts(model: torch.nn.Module, folder: Path) -> Experts:
    """The stacks of `model`, which was loaded from `folder`.

    Raises:
        InvalidArgumentError: it has none, or its files do not hold them one by one.
    """
    found = _fused(model)
    if not found:
        raise _refused("the blocks of this model have no fused experts")
    in_files = dict(_in_files(folder))
    layers = []
    for name, module in found:
        stack: Any = getattr(module, STACKS[0])
        files, names = in_files.get(_layer(name), ("", _NAMES[0]))
        layer = Stacks(name, files, names, int(stack.shape[0]) if stack.dim() == 3 else 0)
        if not files or not _same(folder, layer, module):
            raise _refused(
                f"the files of this model do not hold {name} one expert at a time, and an adapter "
                "of them could not be served"
            )
        layers.append(layer)
    return Experts(tuple(layers))


def has_experts(model: torch.nn.Module) -> bool:
    """Whether the model has stacks."""
    return bool(_fused(model))


def frozen_experts(model: torch.nn.Module, folder: Path) -> str:
    """What to tell people of a model, loaded from `folder`, whose experts an adapter leaves out.

    Nothing where it has none. To be asked before an adapter is on the model.
    """
    found = _fused(model)
    if not found:
        return ""
    stacks = sum(getattr(module, stack).numel() for _, module in found for stack in STACKS)
    share = stacks / sum(parameter.numel() for parameter in model.parameters())
    way = "training.trainable TRAINABLE_KIND_FULL trains them, for its files hold them fused"
    if next(_in_files(folder), None) is not None:
        way = f"name `{EXPERTS}` among training.lora.target_modules to train them"
    return f"the model's experts, {share:.0%} of its parameters, are frozen: {way}"


def _fused(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    return [
        (name, module)
        for name, module in model.named_modules()
        if name.endswith(f".{EXPERTS}") and all(hasattr(module, stack) for stack in STACKS)
    ]


def _refused(why: str) -> InvalidArgumentError:
    text = f"got {EXPERTS}; {why}; allowed are names of linear layers"
    return InvalidArgumentError(violations=[Violation("training.lora.target_modules", text)])


def _layer(name: str) -> int:
    found = _LAYER.search(f".{name}")
    return int(found[1]) if found else -1


def _in_files(folder: Path) -> Iterator[tuple[int, tuple[str, tuple[str, str, str]]]]:
    for file in weight_files(folder):
        with safe_open(file, framework="pt") as tensors:
            for key in tensors.keys():  # noqa: SIM118 - not a dict
                if found := _IN_FILES.fullmatch(key):
                    names = next(each for each in _NAMES if each[0] == found[2])
                    yield _layer(key), (found[1], names)


def _same(folder: Path, layer: Stacks, module: torch.nn.Module) -> bool:
    """Whether the first expert in the files is the first of the stacks."""
    wanted = {f"{layer.files}.0.{name}.weight": name for name in layer.names}
    held: dict[str, torch.Tensor] = {}
    for file in weight_files(folder):
        with safe_open(file, framework="pt") as tensors:
            for key in wanted.keys() & set(tensors.keys()):
                held[wanted[key]] = tensors.get_tensor(key)
    if len(held) != len(layer.names):
        return False
    gate, up, down = (held[name] for name in layer.names)
    pairs = zip(STACKS, (torch.cat([gate, up]), down), strict=True)
    return all(
        torch.equal(found, part.to(found.dtype))
        # All are asked for: a stack that is sharded is gathered by all processes.
        for found, part in [(_first(getattr(module, stack)), part) for stack, part in pairs]
    )


def _first(stack: torch.Tensor) -> torch.Tensor:
    if isinstance(stack, DTensor):
        stack = stack.full_tensor()
    return stack[0].detach().cpu()


def _factors(layer: Stacks, stack: str) -> tuple[str, str]:
    # PEFT wraps the stacks one in the other, the first one innermost.
    inner = ".base_layer" if stack == STACKS[0] else ""
    return (
        f"{PREFIX}{layer.module}{inner}.lora_A.weight",
        f"{PREFIX}{layer.module}{inner}.lora_B.weight",
    )


def _file_name(layer: Stacks, expert: int, name: str, half: str) -> str:
    return f"{PREFIX}{layer.files}.{expert}.{name}.lora_{half}.weight"


def _of(b: torch.Tensor, expert: int, count: int) -> torch.Tensor:
    """[out, rank] of a stack's [out, rank · E]: PEFT numbers the experts fastest."""
    return b.view(len(b), -1, count)[:, :, expert]


def _stacked(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(parts, dim=2).flatten(1)
