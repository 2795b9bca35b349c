"""Checkpoints in the registry."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from podium.core.errors import AlreadyExistsError, DataLossError
from podium.deltas import FILE, write_delta
from podium.models import resolve
from podium.registry.v1 import registry_service_pb2 as registry_pb2
from podium.registry_client import RegistryClient
from podium.registry_client.transfer import digest_of

from podium_trainer.checkpoint import MODEL, READ, Checkpoint, read, write


@dataclass(frozen=True)
class Published:
    """A version of the registry."""

    version: int
    manifest_digest: str
    total_bytes: int


@dataclass(frozen=True)
class Provenance:
    """What a manifest says besides its files."""

    base_model: str
    parent: int | None
    """The version that the step was taken from."""
    group_ids: Sequence[str]
    metrics: Mapping[str, float]


class Versions(Protocol):
    """Where checkpoints live."""

    async def fetch(self, job_id: str, version: int) -> tuple[Checkpoint, Published]:
        """A checkpoint, verified.

        Raises:
            NotFoundError: there is no such version.
            DataLossError: its bytes are damaged.
            UnavailableError: the registry cannot be reached.
        """
        ...

    async def publish(
        self, job_id: str, checkpoint: Checkpoint, provenance: Provenance
    ) -> Published:
        """Publishes version `checkpoint.step`; published already, it is found.

        Raises:
            AlreadyExistsError: that version holds other bytes.
            PodiumError: as the registry's CreateVersion.
        """
        ...


@dataclass(frozen=True)
class _Kept:
    """A version's `model/` on this machine, until closed."""

    job_id: str
    version: int
    model: Path
    close: Callable[[], None]

    def is_version(self, job_id: str, version: int | None) -> bool:
        """Whether it is that one."""
        return (self.job_id, self.version) == (job_id, version)


class RegistryVersions:
    """`Versions` through podium.registry.v1."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._last: _Kept | None = None
        """The whole weights last fetched or published, which the next delta starts from."""

    async def fetch(self, job_id: str, version: int) -> tuple[Checkpoint, Published]:
        """See `Versions`."""
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="podium-trainer-"))
            target = Path(folder) / "version"
            found = await self._client.pull(job_id, version, target, only=READ)
            checkpoint = await asyncio.to_thread(read, target)
            if checkpoint.step != version:
                raise DataLossError(f"version {version} of {job_id} is of step {checkpoint.step}")
            self._keep(job_id, checkpoint, target, stack)
        return checkpoint, _published(found)

    async def publish(
        self, job_id: str, checkpoint: Checkpoint, provenance: Provenance
    ) -> Published:
        """See `Versions`."""
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="podium-trainer-"))
            base, target = resolve(provenance.base_model), Path(folder) / "version"
            files = await asyncio.to_thread(write, checkpoint, base, target)
            last = self._last
            if checkpoint.is_full and last and last.is_version(job_id, provenance.parent):
                delta = target / "delta" / FILE
                await asyncio.to_thread(write_delta, last.model, target / MODEL, delta)
                files[f"delta/{FILE}"] = delta
            published = _published(await self._push(job_id, checkpoint, provenance, files))
            self._keep(job_id, checkpoint, target, stack)
        return published

    def _keep(self, job_id: str, checkpoint: Checkpoint, folder: Path, stack: ExitStack) -> None:
        if self._last is not None:
            self._last.close()
            self._last = None
        if checkpoint.is_full:
            close = stack.pop_all().close
            self._last = _Kept(job_id, checkpoint.step, folder / MODEL, close)

    async def _push(
        self,
        job_id: str,
        checkpoint: Checkpoint,
        provenance: Provenance,
        files: Mapping[str, Path],
    ) -> registry_pb2.Version:
        manifest = registry_pb2.Manifest(
            model=job_id,
            version=checkpoint.step,
            kind=registry_pb2.VERSION_KIND_FULL
            if checkpoint.is_full
            else registry_pb2.VERSION_KIND_ADAPTER,
            base_model=provenance.base_model,
            base_model_digest=checkpoint.base_model_digest,
            group_ids=provenance.group_ids,
            metrics=provenance.metrics,
        )
        if provenance.parent is not None:
            manifest.parents.add(model=job_id, version=provenance.parent)
        try:
            return await self._client.push(
                files, manifest, request_id=f"{job_id}/{checkpoint.step}"
            )
        except AlreadyExistsError:
            # Seconds and the like differ from one run of a step to the next; the weights,
            # optimizer and random state do not.
            version = await self._client.get_version(job_id, checkpoint.step)
            if not await asyncio.to_thread(_same_files, version.manifest, files):
                raise
            return version


def _published(version: registry_pb2.Version) -> Published:
    return Published(version.manifest.version, version.manifest_digest, version.total_bytes)


def _same_files(manifest: registry_pb2.Manifest, files: Mapping[str, Path]) -> bool:
    ours = {path: digest_of(data) for path, data in files.items()}
    return ours == {file.path: file.digest for file in manifest.files}
