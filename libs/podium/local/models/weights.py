"""The files in which a model's weights lie, and what their headers say. Light: no torch."""

from __future__ import annotations

import json
import struct
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

_HEADER_BYTES = 100_000_000
"""The most that safetensors itself reads as one."""


@dataclass(frozen=True)
class StoredTensor:
    """What a header says of a tensor."""

    dtype: str
    """By safetensors' name, such as `BF16`."""
    shape: tuple[int, ...]


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that hold the weights of the model in `folder`, in name order.

    Those that its index names, as Transformers and vLLM read it; without one the single file, or
    all that there are. A repository may hold the weights again under other names, such as
    Mistral's `consolidated.safetensors`.

    Raises:
        ValueError: the index cannot be read, or names what is no file beside it.
    """
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if (folder / INDEX).is_file():
        return [folder / name for name in sorted(set(index_of(folder).values()))]
    return sorted(folder.glob("*.safetensors"))


def index_of(folder: Path) -> Mapping[str, str]:
    """Of each tensor that the index names, its file.

    Raises:
        ValueError: the index cannot be read, or names what is no file beside it.
    """
    try:
        files = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
        named = {str(tensor): str(file) for tensor, file in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{INDEX} cannot be read: {error!r}") from error
    for file in named.values():
        if Path(file).name != file or not file.endswith(".safetensors"):
            raise ValueError(f"{INDEX} names {file!r}, which is no safetensors file beside it")
    return named


def name_in_files(layer: str, tensors: Container[str]) -> str:
    """What the files call a layer whose weight is among `tensors`, by Transformers' name of it.

    The same, but for models of text and images whose files are of older Transformers, as Gemma
    3's are: their part for text is a whole model there.
    """
    if f"{layer}.weight" in tensors:
        return layer
    return layer.replace("model.language_model.", "language_model.model.", 1)


def stored_tensors(file: Path) -> dict[str, StoredTensor]:
    """What a safetensors file holds, by name; none of the numbers is read.

    Raises:
        ValueError: it is none, or is cut short.
        OSError: it cannot be read.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(8)
        if start == b"version ":
            raise ValueError("it is a pointer of Git LFS and not the file itself")
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if length > min(size - 8, _HEADER_BYTES):
            raise ValueError("it is no safetensors file, or is cut short")
        try:
            header = json.loads(stream.read(length))
            header.pop("__metadata__", None)
            found = {
                str(name): StoredTensor(str(each["dtype"]), tuple(each["shape"]))
                for name, each in header.items()
            }
            end = 8 + length + max((each["data_offsets"][1] for each in header.values()), default=0)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError("it is no safetensors file: its header cannot be read") from error
    if end != size:
        raise ValueError(f"it has {size} bytes, and its header tells of {end}")
    return found


def tensors_of(folder: Path) -> dict[str, StoredTensor]:
    """All that the weight files of the model in `folder` hold, by name.

    Raises:
        ValueError: a file is damaged; see `weight_files` and `stored_tensors`.
        OSError: a file is missing or cannot be read.
    """
    found: dict[str, StoredTensor] = {}
    for file in weight_files(folder):
        try:
            found |= stored_tensors(file)
        except ValueError as error:
            raise ValueError(f"{file.name} cannot be read: {error}") from error
    return found
