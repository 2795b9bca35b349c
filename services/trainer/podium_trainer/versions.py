"""Checkpoints in the registry."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from podium.core.errors import AlreadyExistsError, DataLossError
from podium.models import resolve
from podium.registry.v1 import registry_service_pb2 as registry_pb2
from podium.registry_client import RegistryClient
from podium.registry_client.transfer import digest_of

from podium_trainer.checkpoint import Checkpoint, read, write


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


class RegistryVersions:
    """`Versions` through podium.registry.v1."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client

    async def fetch(self, job_id: str, version: int) -> tuple[Checkpoint, Published]:
        """See `Versions`."""
        with tempfile.TemporaryDirectory(prefix="podium-trainer-") as folder:
            target = Path(folder) / "version"
            found = await self._client.pull(job_id, version, target)
            checkpoint = await asyncio.to_thread(read, target)
        if checkpoint.step != version:
            raise DataLossError(f"version {version} of {job_id} is of step {checkpoint.step}")
        return checkpoint, _published(found)

    async def publish(
        self, job_id: str, checkpoint: Checkpoint, provenance: Provenance
    ) -> Published:
        """See `Versions`."""
        with tempfile.TemporaryDirectory(prefix="podium-trainer-") as folder:
            base = resolve(provenance.base_model)
            files = await asyncio.to_thread(write, checkpoint, base, Path(folder))
            return _published(await self._push(job_id, checkpoint, provenance, files))

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
