"""Checkpoints in the registry."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from podium.core.errors import (
    AlreadyExistsError,
    DataLossError,
    FailedPreconditionError,
    UnavailableError,
)
from podium.core.version_state import has_state
from podium.kit.deltas import FOLDER
from podium.kit.registry_client import RegistryClient
from podium.kit.rpc.tls import Tls
from podium.kit.rpc.watched_files import Token
from podium.local.models import INDEX
from podium.registry.v1 import registry_service_pb2 as registry_pb2

from podium_trainer.adapters.parts import Parts, VersionPart
from podium_trainer.learner.checkpoint import (
    MODEL,
    READ,
    SHARDS,
    Checkpoint,
    model_index,
    read,
)
from podium_trainer.learner.parallel import Ranks

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class PublishedVersion:
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


class CheckpointStore(Protocol):
    """Where checkpoints live."""

    async def fetch(self, job_id: str, version: int) -> tuple[Checkpoint, PublishedVersion]:
        """A checkpoint, verified.

        Raises:
            NotFoundError: there is no such version.
            FailedPreconditionError: STATE_NOT_STORED: it can only be served.
            DataLossError: its bytes are damaged.
            UnavailableError: the registry cannot be reached.
        """
        ...

    async def publish(
        self, job_id: str, checkpoint: Checkpoint, provenance: Provenance, *, with_state: bool
    ) -> PublishedVersion:
        """Publishes version `checkpoint.step`; published already, it is found.

        Raises:
            AlreadyExistsError: that version holds other bytes.
            PodiumError: as the registry's CreateVersion.
        """
        ...

    async def add_state(self, job_id: str, checkpoint: Checkpoint) -> None:
        """Adds its state to a version that is published; it may be there already.

        Raises:
            PodiumError: as the registry's AddState.
        """
        ...


class RegistryVersions:
    """`CheckpointStore` through podium.registry.v1, of one process or the first of several."""

    def __init__(self, client: RegistryClient, ranks: Ranks) -> None:
        self._client = client
        self._ranks = ranks
        self._parts = Parts(ranks)

    async def fetch(self, job_id: str, version: int) -> tuple[Checkpoint, PublishedVersion]:
        """See `CheckpointStore`."""
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="podium-trainer-"))
            target = Path(folder) / "version"
            # Of whole weights the next delta starts from model/, which one process has whole.
            only = READ if self._ranks.sharded else (*READ, f"{MODEL}/")
            found = await self._client.get_version(job_id, version)
            if not has_state(found):
                raise FailedPreconditionError(
                    f"{job_id}@{version} has weights alone; allowed are versions with state",
                    reason="STATE_NOT_STORED",
                    metadata={"model": job_id, "version": str(version)},
                )
            found = await self._client.pull(job_id, version, target, only=only)
            checkpoint = await asyncio.to_thread(read, target)
            if checkpoint.step != version:
                raise DataLossError(f"version {version} of {job_id} is of step {checkpoint.step}")
            if checkpoint.is_full:
                self._parts.keep(job_id, version, target / MODEL, stack.pop_all())
        return checkpoint, _published(found)

    async def publish(
        self, job_id: str, checkpoint: Checkpoint, provenance: Provenance, *, with_state: bool
    ) -> PublishedVersion:
        """See `CheckpointStore`."""
        store = self._parts.store(
            self._client,
            job_id,
            provenance.base_model,
            checkpoint,
            provenance.parent,
            with_state=with_state,
        )
        parts = await self._of_all(store, checkpoint)
        return _published(await self._create(job_id, checkpoint, provenance, parts))

    async def add_state(self, job_id: str, checkpoint: Checkpoint) -> None:
        """See `CheckpointStore`."""
        store = self._parts.store_state(self._client, checkpoint)
        parts = await self._of_all(store, checkpoint, behind=True)
        files = [file for part in parts for file in part.files]
        # Another one is of the same step taken before, as on a GPU: a job goes on from either.
        with suppress(AlreadyExistsError):
            await self._client.add_state(
                job_id, checkpoint.step, sorted(files, key=lambda file: file.path)
            )

    async def _of_all(
        self,
        store: Coroutine[Any, Any, VersionPart],
        checkpoint: Checkpoint,
        *,
        behind: bool = False,
    ) -> list[VersionPart]:
        """This process's part and, of whole weights, those of the others.

        Raises:
            PodiumError: one of them could not be stored.
        """
        failure: Exception | None = None
        try:
            part = await store
        except Exception as error:
            # The other processes wait to be asked for theirs.
            part, failure = VersionPart(failure=str(error)), error
        parts = [part]
        if checkpoint.is_full:
            parts = await asyncio.to_thread(self._ranks.collect, part, behind=behind)
        if failure is not None:
            raise failure
        for rank, other in enumerate(parts):
            if other.failure:
                raise UnavailableError(
                    f"process {rank} of the trainer could not store its part: {other.failure}",
                    reason="PART_NOT_STORED",
                )
        return parts

    async def _create(
        self,
        job_id: str,
        checkpoint: Checkpoint,
        provenance: Provenance,
        parts: Sequence[VersionPart],
    ) -> registry_pb2.Version:
        files = [file for part in parts for file in part.files]
        if not all(part.has_delta or not part.tensors for part in parts):
            files = [file for file in files if not file.path.startswith(FOLDER)]
        if checkpoint.is_full and len(parts) > 1:
            names = {name: file for part in parts for name, file in part.tensors.items()}
            index = model_index(names, sum(part.tensor_bytes for part in parts))
            files += await self._client.upload({f"{MODEL}/{INDEX}": index})
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
            files=sorted(files, key=lambda file: file.path),
        )
        if provenance.parent is not None:
            manifest.parents.add(model=job_id, version=provenance.parent)
        try:
            return await self._client.create(manifest, request_id=f"{job_id}/{checkpoint.step}")
        except AlreadyExistsError:
            # Seconds and the like differ from one run of a step to the next; the weights,
            # optimizer and random state do not.
            version = await self._client.get_version(job_id, checkpoint.step)
            if _digests(version.manifest) != _digests(manifest):
                raise
            return version


class FollowerVersions:
    """What a process other than the first has to do with the registry. Blocking."""

    def __init__(self, address: str, token: Token, tls: Tls | None, ranks: Ranks) -> None:
        """`token` and `tls` as for `podium.kit.rpc.connect`."""
        self._address = address
        self._token, self._tls = token, tls
        self._ranks = ranks
        self._parts = Parts(ranks)
        self._fetched: tempfile.TemporaryDirectory[str] | None = None

    def fetch_shards(self, job_id: str, version: int) -> Path:
        """Where the shards of whole weights lie, until the next call.

        Raises:
            PodiumError: what the registry refused them with.
        """
        if self._fetched is not None:
            self._fetched.cleanup()
        self._fetched = tempfile.TemporaryDirectory(prefix="podium-trainer-")
        target = Path(self._fetched.name) / "version"
        self._with_client(lambda client: client.pull(job_id, version, target, only=(f"{SHARDS}/",)))
        return target / SHARDS

    def store(
        self,
        job_id: str,
        base_model: str,
        checkpoint: Checkpoint,
        parent: int | None,
        with_state: bool,
    ) -> None:
        """Stores this process's part of whole weights, and tells the first what it is."""
        self._tell(
            lambda client: self._parts.store(
                client, job_id, base_model, checkpoint, parent, with_state=with_state
            )
        )

    def store_state(self, checkpoint: Checkpoint) -> None:
        """The same of their state, which can be stored again."""
        self._tell(lambda client: self._parts.store_state(client, checkpoint), behind=True)

    def _tell(
        self,
        store: Callable[[RegistryClient], Coroutine[Any, Any, VersionPart]],
        *,
        behind: bool = False,
    ) -> None:
        try:
            part = self._with_client(store)
        except Exception as error:
            logger.exception("this process could not store its part of a version")
            part = VersionPart(failure=str(error))
        self._ranks.collect(part, behind=behind)

    def _with_client(self, call: Callable[[RegistryClient], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            client = RegistryClient(self._address, token=self._token, tls=self._tls)
            try:
                return await call(client)
            finally:
                await client.close()

        return asyncio.run(run())


def _published(version: registry_pb2.Version) -> PublishedVersion:
    return PublishedVersion(version.manifest.version, version.manifest_digest, version.total_bytes)


def _digests(manifest: registry_pb2.Manifest) -> dict[str, str]:
    """Of its files. A delta follows from the rest, and is there when the parent was at hand."""
    return {file.path: file.digest for file in manifest.files if not file.path.startswith(FOLDER)}
