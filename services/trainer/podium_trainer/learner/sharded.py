"""Whole weights and their optimizer as each process holds them: torch.distributed.checkpoint.

Every process writes its own shards, in safetensors and in the background, and reads what
of them its own shards need; how many processes wrote them does not matter.
"""

from __future__ import annotations

import json
import struct
import tempfile
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed.checkpoint as dcp
from podium.core.errors import DataLossError
from safetensors import SafetensorError
from torch.distributed.checkpoint.api import CheckpointException

from podium_trainer.learner.parallel import Ranks

_FILE_BYTES = 2 * 10**9

warnings.filterwarnings("ignore", message="torch.distributed is disabled")


class Shards:
    """A copy of one process's shards on its way to files of a folder of its own."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], ranks: Ranks) -> None:
        """Copies the shards and begins to write them; every process must.

        The tensors may change as soon as this returns.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="podium-shards-")
        writer = dcp.HuggingFaceStorageWriter(
            self._folder.name, _file_numbers(tensors, ranks.size), save_distributed=True
        )
        written = dcp.async_save(
            dict(tensors),
            storage_writer=writer,
            process_group=ranks.behind,
            no_dist=not ranks.sharded,
        )
        assert isinstance(written, Future), "this writer copies before it returns"
        self._written = written

    def wait(self) -> list[Path]:
        """Waits for the files of this process, and returns them. Blocking."""
        self._written.result()
        files = sorted(Path(self._folder.name).glob("*.safetensors"))
        for file in files:
            _order_header(file)
        return files

    def close(self) -> None:
        """Removes the files."""
        with suppress(Exception):
            self._written.result()
        self._folder.cleanup()


def read_shards(folder: Path, into: Mapping[str, torch.Tensor], ranks: Ranks) -> None:
    """Fills `into`, which may be sharded over any number of processes; all must ask.

    Raises:
        DataLossError: the files cannot be read, or hold other tensors.
    """
    try:
        entries = _entries(folder)
        if entries.keys() != into.keys():
            one = sorted(entries.keys() ^ into.keys())[0]
            raise DataLossError(f"the shards are of other tensors: {one} is in one of the two")
        for name, entry in entries.items():
            held = sum(prod(chunk.sizes) for chunk in entry.chunks)
            # What no file has, the reader would leave as it was.
            if entry.size != into[name].shape or held != prod(entry.size):
                raise DataLossError(f"{name} does not fit what trains, or a part of it is missing")
        dcp.load(
            dict(into),
            storage_reader=dcp.HuggingFaceStorageReader(str(folder)),
            process_group=ranks.behind,
            no_dist=not ranks.sharded,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise DataLossError(f"the shards cannot be read: {type(error).__name__}") from error
    except CheckpointException as error:
        kinds = sorted({type(wrapped[0]).__name__ for wrapped in error.failures.values()})
        raise DataLossError(f"the shards cannot be read: {', '.join(kinds)}") from error


def shard_names(folder: Path) -> set[str]:
    """The names of the tensors in the files.

    Raises:
        DataLossError: the files cannot be read.
    """
    try:
        return set(_entries(folder))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DataLossError(f"the shards cannot be read: {type(error).__name__}") from error


def _entries(folder: Path) -> dict[str, Any]:
    # A folder that holds nothing is not in a version.
    if not folder.is_dir():
        return {}
    return dcp.HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata


def _file_numbers(tensors: Mapping[str, torch.Tensor], size: int) -> dict[str, int]:
    """Which file of a process, from 1, each tensor's shard goes to."""
    numbers: dict[str, int] = {}
    filled = 0
    for name, tensor in tensors.items():
        filled += tensor.numel() * tensor.element_size() // size
        numbers[name] = 1 + filled // _FILE_BYTES
    # Without gaps: the greatest number is how many files there are.
    order = {number: place for place, number in enumerate(sorted(set(numbers.values())), 1)}
    return {name: order[number] for name, number in numbers.items()}


def read_header(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file that is at its start, and the bytes that it takes."""
    (length,) = struct.unpack("<Q", file.read(8))
    return json.loads(file.read(length)), length


def _order_header(path: Path) -> None:
    """Puts the header of a safetensors file in order: it writes its entries in any.

    The same state must be the same bytes: a step that is taken again publishes it again.
    """
    with path.open("r+b") as file:
        header, length = read_header(file)
        text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        data = text.encode().ljust(length)
        assert len(data) == length, "the same entries are as long in any order"
        file.seek(8)
        file.write(data)
