"""What each process of a trainer stores of a version."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from podium.kit.deltas import FOLDER, write_delta
from podium.kit.registry_client import RegistryClient
from podium.local.models import resolve
from podium.registry.v1 import registry_service_pb2 as registry_pb2

from podium_trainer.learner.checkpoint import (
    MODEL,
    Checkpoint,
    write,
    write_state,
    write_weights,
)
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.sharded import Shards, read_header


@dataclass(frozen=True)
class VersionPart:
    """One process's files of a version, in the registry already."""

    files: Sequence[registry_pb2.File] = ()
    tensors: dict[str, str] = field(default_factory=dict)
    """Of its `model/`: names, and in which file each lies."""
    tensor_bytes: int = 0
    has_delta: bool = False
    failure: str = ""
    """Why it could not be stored; empty when it was."""


@dataclass(frozen=True)
class _Kept:
    """What a process has of a version's `model/`, until closed."""

    job_id: str
    version: int
    folder: Path
    stack: ExitStack


class Parts:
    """Stores this process's part of one version after another."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._kept: list[_Kept] = []
        """Of whole weights, the version stored last and its parent: a save may be repeated."""

    async def store(
        self,
        client: RegistryClient,
        job_id: str,
        base_model: str,
        checkpoint: Checkpoint,
        parent: int | None,
        *,
        with_state: bool,
    ) -> VersionPart:
        """Writes and uploads the files, and a delta where the parent's are at hand.

        Raises:
            PodiumError: what the registry refused them with.
        """
        with ExitStack() as stack:
            if with_state and isinstance(checkpoint.shards, Shards):
                stack.callback(checkpoint.shards.close)
            keep = stack.enter_context(ExitStack())
            folder = Path(keep.enter_context(tempfile.TemporaryDirectory(prefix="podium-part-")))
            target = folder / "version"
            written = write if with_state else write_weights
            files = await asyncio.to_thread(
                written, checkpoint, resolve(base_model), target, self._ranks
            )
            before = self._find(job_id, parent)
            models = sorted((target / MODEL).glob("*.safetensors"))
            if before and models:
                delta = f"{FOLDER}delta{self._ranks.mark}.safetensors"
                await asyncio.to_thread(write_delta, before, target / MODEL, target / delta)
                files[delta] = target / delta
            described = await client.upload(files)
            if checkpoint.is_full:
                self.keep(job_id, checkpoint.step, target / MODEL, keep.pop_all(), parent)
        headers = {path.name: _header(path) for path in models}
        return VersionPart(
            files=described,
            tensors={name: file for file, (names, _) in headers.items() for name in names},
            tensor_bytes=sum(size for _, size in headers.values()),
            has_delta=bool(before),
        )

    async def store_state(self, client: RegistryClient, checkpoint: Checkpoint) -> VersionPart:
        """Writes and uploads what resumes the version; it can be stored again.

        Raises:
            PodiumError: what the registry refused it with.
        """
        with tempfile.TemporaryDirectory(prefix="podium-part-") as folder:
            target = Path(folder) / "version"
            files = await asyncio.to_thread(write_state, checkpoint, target, self._ranks)
            return VersionPart(files=await client.upload(files) if files else ())

    def keep(
        self, job_id: str, version: int, folder: Path, stack: ExitStack, parent: int | None = None
    ) -> None:
        """Keeps a version's `model/` for the next delta until `stack` may be closed."""
        for kept in self._kept:
            if (kept.job_id, kept.version) != (job_id, parent):
                kept.stack.close()
        self._kept = [it for it in self._kept if (it.job_id, it.version) == (job_id, parent)]
        self._kept.append(_Kept(job_id, version, folder, stack))

    def _find(self, job_id: str, version: int | None) -> Path | None:
        for kept in self._kept:
            # Of a version that several processes were to go on from, only shards were fetched.
            if (kept.job_id, kept.version) == (job_id, version) and kept.folder.is_dir():
                return kept.folder
        return None


def _header(path: Path) -> tuple[list[str], int]:
    """Names of a safetensors file's tensors, and their bytes."""
    with path.open("rb") as file:
        header, length = read_header(file)
    return sorted(header.keys() - {"__metadata__"}), path.stat().st_size - 8 - length
