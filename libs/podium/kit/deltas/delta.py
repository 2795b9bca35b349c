"""Deltas between two folders of safetensors that hold the same tensors.

A delta has, for a tensor `T` that changed in part, `T:index` ([n], int32
where that is enough, into the flattened tensor) and `T:value` ([n], of the tensor's
type); `T:whole` for one that changed in more than a quarter; nothing for one that did
not change. Its header has the sha256 of every tensor of the result, and which file each
lies in.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.core.errors import DataLossError

if TYPE_CHECKING:
    import torch

FOLDER = "delta/"
"""Where in a version they lie."""

_HEADER = "podium-delta-1"

_SPARSE = 0.25
"""An index has four bytes and a value mostly two: with more than a third of changes the whole
tensor is smaller, and it is quicker before that."""


def write_delta(before: Path, after: Path, target: Path) -> None:
    """Writes what turns the tensors of folder `before` into those of `after`.

    Raises:
        ValueError: the folders do not hold tensors of the same names, shapes and types.
    """
    import torch
    from safetensors.torch import save_file

    parts: dict[str, torch.Tensor] = {}
    sums: dict[str, str] = {}
    with ExitStack() as stack:
        old, new = _Weights(before, stack), _Weights(after, stack)
        if old.files.keys() != new.files.keys():
            one = sorted(old.files.keys() ^ new.files.keys())[0]
            raise ValueError(f"{one} is in one of the folders only")
        for name in new.files:
            was, is_now = old[name], new[name]
            if was.shape != is_now.shape or was.dtype != is_now.dtype:
                raise ValueError(f"{name} has another shape or type")
            sums[name] = _sum(is_now)
            flat = is_now.reshape(-1)
            # Bits, not numbers: a NaN differs from itself, and two zeros differ in sign.
            changed = (_bits(was) != _bits(is_now)).reshape(-1).nonzero()[:, 0]
            if len(changed) > _SPARSE * flat.numel():
                parts[f"{name}:whole"] = is_now
            elif len(changed):
                small = flat.numel() <= torch.iinfo(torch.int32).max
                parts[f"{name}:index"] = changed.int() if small else changed
                parts[f"{name}:value"] = flat[changed]
    # One entry: safetensors writes several in any order, and equal deltas are equal bytes.
    header = {_HEADER: json.dumps({"sums": sums, "files": new.files}, sort_keys=True)}
    target.parent.mkdir(parents=True, exist_ok=True)
    save_file(parts, target, metadata=header)


def apply_delta(before: Path, deltas: Sequence[Path], target: Path) -> None:
    """Writes to folder `target` what `before` becomes, other files of `before` included.

    Several deltas are each of a part of the tensors; together they are of all.

    Raises:
        DataLossError: a delta cannot be read, or they do not lead from these weights to the
            tensors that they name.
    """
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save_file

    try:
        with ExitStack() as stack:
            old = _Weights(before, stack)
            sums: dict[str, str] = {}
            files: dict[str, str] = {}
            parts: dict[str, Any] = {}
            for delta in deltas:
                opened = stack.enter_context(safe_open(delta, framework="pt"))
                header = json.loads((opened.metadata() or {})[_HEADER])
                sums |= header["sums"]
                files |= header["files"]
                parts |= dict.fromkeys(opened.keys(), opened)
            if old.files.keys() != sums.keys() or sums.keys() != files.keys():
                raise DataLossError("the delta is of other tensors")
            if any(Path(file).name != file for file in files.values()):
                raise DataLossError("the delta names a file outside its folder")
            target.mkdir(parents=True)
            for file in sorted(set(files.values())):
                made: dict[str, torch.Tensor] = {}
                for name in sorted(name for name, place in files.items() if place == file):
                    made[name] = _patched(parts, name, old)
                    if _sum(made[name]) != sums[name]:
                        raise DataLossError(f"{name} is not what the delta leads to")
                save_file(made, target / file, metadata={"format": "pt"})
    except (OSError, ValueError, KeyError, IndexError, RuntimeError, SafetensorError) as error:
        raise DataLossError(f"the delta cannot be applied: {type(error).__name__}") from error
    for path in before.iterdir():
        if path.suffix != ".safetensors" and not path.name.endswith(".index.json"):
            shutil.copyfile(path, target / path.name)


def _patched(parts: Mapping[str, Any], name: str, old: _Weights) -> torch.Tensor:
    """`parts` has the opened delta that holds each of the deltas' tensors."""

    def part(kind: str) -> torch.Tensor:
        found: torch.Tensor = parts[f"{name}:{kind}"].get_tensor(f"{name}:{kind}")
        return found

    if f"{name}:whole" in parts:
        return part("whole")
    tensor = old[name]
    if f"{name}:index" in parts:
        tensor = tensor.clone()
        tensor.view(-1)[part("index").long()] = part("value")
    return tensor


class _Weights:
    """The tensors of a folder's files, each opened once, until `stack` closes."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        from safetensors import safe_open

        self.files: dict[str, str] = {}
        """Tensor name to the name of its file."""
        self._opened: dict[str, Any] = {}
        for path in sorted(folder.glob("*.safetensors")):
            opened = stack.enter_context(safe_open(path, framework="pt"))
            self._opened[path.name] = opened
            self.files |= dict.fromkeys(opened.keys(), path.name)

    def __getitem__(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._opened[self.files[name]].get_tensor(name)
        return tensor


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(kinds[tensor.element_size()])


def _sum(tensor: torch.Tensor) -> str:
    import torch

    data: Any = tensor.contiguous().view(-1).view(torch.uint8).numpy()
    return hashlib.sha256(data).hexdigest()
