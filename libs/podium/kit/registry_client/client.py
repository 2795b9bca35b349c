"""`RegistryClient`."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from podium.core.errors import PodiumError
from podium.core.version_state import all_files
from podium.kit.registry_client import transfer
from podium.kit.rpc import connect, retry_unavailable, rpc_errors
from podium.kit.rpc.tls import Tls
from podium.kit.rpc.watched_files import Token
from podium.registry.v1 import registry_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2_grpc as pb_grpc

_PEER = "registry"
_PARALLEL = 4
_TRANSFER_SECONDS = 600.0
_RETRY_SECONDS = 60.0


class RegistryClient:
    """Publishes, fetches and watches versions.

    Every method raises the exceptions of `podium.core.errors` and is bounded
    in time; publishing and fetching go on through restarts of the registry.
    """

    def __init__(
        self, target: str | grpc.aio.Channel, *, token: Token = "", tls: Tls | None = None
    ) -> None:
        """`target` is `host:port`, or a channel that the caller closes."""
        self._owned = (
            connect(target, token=token, tls=tls, direct=True) if isinstance(target, str) else None
        )
        channel = target if self._owned is None else self._owned
        assert not isinstance(channel, str)
        self._stub: pb_grpc.RegistryServiceAsyncStub = pb_grpc.RegistryServiceStub(channel)

    async def close(self) -> None:
        """Closes the channel, if the client made it."""
        if self._owned is not None:
            await self._owned.close()

    async def push(
        self,
        files: Mapping[str, transfer.BlobSource],
        manifest: pb.Manifest,
        *,
        request_id: str = "",
        timeout_s: float = _TRANSFER_SECONDS,
    ) -> pb.Version:
        """Uploads what the registry lacks, then publishes.

        Args:
            files: path in the version to a file, or to its bytes.
            manifest: everything but `files`, which is filled in here.
            request_id: makes the call idempotent; without one a lost answer
                shows as ALREADY_EXISTS.

        Returns:
            The published version.
        """
        described = await _describe(files)
        full = pb.Manifest()
        full.CopyFrom(manifest)
        del full.files[:]
        full.files.extend(described)

        async def publish() -> pb.Version:
            await self._send(files, described, timeout_s)
            return await self._create(full, request_id)

        return await retry_unavailable(publish, timeout_s=timeout_s if request_id else 0)

    async def upload(
        self, files: Mapping[str, transfer.BlobSource], *, timeout_s: float = _TRANSFER_SECONDS
    ) -> list[pb.File]:
        """Uploads what the registry lacks, for a version that `create` publishes.

        Args:
            files: as of `push`.

        Returns:
            What the version's manifest must hold for them.
        """
        described = await _describe(files)
        await retry_unavailable(
            lambda: self._send(files, described, timeout_s), timeout_s=timeout_s
        )
        return described

    async def create(
        self, manifest: pb.Manifest, *, request_id: str, timeout_s: float = _TRANSFER_SECONDS
    ) -> pb.Version:
        """Publishes a version whose files were uploaded."""
        return await retry_unavailable(
            lambda: self._create(manifest, request_id), timeout_s=timeout_s
        )

    async def add_state(
        self,
        model: str,
        version: int,
        files: Sequence[pb.File],
        *,
        timeout_s: float = _TRANSFER_SECONDS,
    ) -> pb.Version:
        """Adds to a published version what resumes it, of files that were uploaded."""
        request = pb.AddStateRequest(model=model, version=version, files=files)

        async def add() -> pb.Version:
            with rpc_errors(_PEER):
                return (await self._stub.AddState(request)).version

        return await retry_unavailable(add, timeout_s=timeout_s)

    async def _send(
        self,
        files: Mapping[str, transfer.BlobSource],
        described: Sequence[pb.File],
        timeout_s: float,
    ) -> None:
        sources = {file.digest: files[file.path] for file in described}
        with rpc_errors(_PEER):
            found = await self._stub.FindBlobs(pb.FindBlobsRequest(digests=sorted(sources)))
        gate = asyncio.Semaphore(_PARALLEL)

        async def send(digest: str) -> None:
            async with gate:
                await transfer.upload(self._stub, sources[digest], digest, timeout_s)

        await _all(send(digest) for digest in sources.keys() - set(found.found_digests))

    async def _create(self, manifest: pb.Manifest, request_id: str) -> pb.Version:
        with rpc_errors(_PEER):
            response = await self._stub.CreateVersion(
                pb.CreateVersionRequest(manifest=manifest, request_id=request_id)
            )
        return response.version

    async def pull(
        self,
        model: str,
        version: int | str,
        destination: Path,
        *,
        only: Sequence[str] = (),
        timeout_s: float = _TRANSFER_SECONDS,
    ) -> pb.Version:
        """Fetches a version into a folder that appears whole or not at all.

        Args:
            version: number or alias.
            destination: must not exist.
            only: path prefixes to fetch; none for all.

        Returns:
            The version; its files lie under `destination` by their paths.
        """
        found = await self.get_version(model, version)
        # Of this version alone: what an interrupted pull of another left is no part of it.
        mark = found.manifest_digest.removeprefix("sha256:")[:12]
        partial = destination.with_name(f"{destination.name}.{mark}.partial")
        wanted = [
            file
            for file in all_files(found)
            if not only or any(file.path.startswith(prefix) for prefix in only)
        ]
        gate = asyncio.Semaphore(_PARALLEL)

        async def fetch(file: pb.File) -> None:
            target = partial / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            async with gate:
                await transfer.download(self._stub, file.digest, target, timeout_s)

        partial.mkdir(parents=True, exist_ok=True)
        await _all(fetch(file) for file in wanted)
        await asyncio.to_thread(_publish, partial, destination)
        return found

    async def get_version(self, model: str, version: int | str) -> pb.Version:
        """A version by number or alias."""
        request = pb.GetVersionRequest(model=model)
        if isinstance(version, int):
            request.version = version
        else:
            request.alias = version
        with rpc_errors(_PEER):
            return (await self._stub.GetVersion(request)).version

    async def list_versions(self, model: str) -> list[pb.Version]:
        """Every version of a model, newest first."""
        versions: list[pb.Version] = []
        token = ""
        while True:
            with rpc_errors(_PEER):
                page = await self._stub.ListVersions(
                    pb.ListVersionsRequest(model=model, page_token=token)
                )
            versions += page.versions
            token = page.next_page_token
            if not token:
                return versions

    async def set_alias(
        self, model: str, alias: str, version: int, *, expected: int | None = None
    ) -> pb.Version:
        """Points an alias at a version; with `expected`, only if it points there (-1: nowhere)."""
        with rpc_errors(_PEER):
            response = await self._stub.SetAlias(
                pb.SetAliasRequest(
                    model=model, alias=alias, version=version, expected_version=expected
                )
            )
        return response.version

    async def record_evaluation(
        self, model: str, version: int, metrics: Mapping[str, float]
    ) -> pb.Version:
        """Adds numbers to a version."""
        with rpc_errors(_PEER):
            response = await self._stub.RecordEvaluation(
                pb.RecordEvaluationRequest(model=model, version=version, metrics=metrics)
            )
        return response.version

    async def apply_retention(
        self, model: str, *, keep_last: int, keep_best: int = 0, metric: str = ""
    ) -> list[int]:
        """Deletes what the rule does not keep; returns the versions deleted."""
        with rpc_errors(_PEER):
            response = await self._stub.ApplyRetention(
                pb.ApplyRetentionRequest(
                    model=model, keep_last=keep_last, keep_best=keep_best, metric=metric
                )
            )
        return list(response.deleted_versions)

    @asynccontextmanager
    async def lease(
        self, model: str, version: int, holder: str, *, ttl_seconds: float = 300.0
    ) -> AsyncIterator[None]:
        """Keeps a version from being deleted while the block runs."""
        request = pb.AcquireLeaseRequest(
            model=model,
            version=version,
            holder=holder,
            ttl=Duration(seconds=int(ttl_seconds)),
        )

        async def acquire() -> str:
            with rpc_errors(_PEER):
                return (await self._stub.AcquireLease(request)).lease_id

        async def renew() -> None:
            while True:
                await asyncio.sleep(ttl_seconds / 3)
                with suppress(PodiumError):
                    await acquire()

        lease_id = await retry_unavailable(acquire, timeout_s=_RETRY_SECONDS)
        renewal = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewal.cancel()
            with suppress(asyncio.CancelledError):
                await renewal
            with suppress(PodiumError), rpc_errors(_PEER):
                await self._stub.ReleaseLease(pb.ReleaseLeaseRequest(lease_id=lease_id))

    async def watch(self, model: str, after: int = 0) -> AsyncIterator[pb.WatchVersionsResponse]:
        """Every change after a sequence number, through restarts of the registry."""

        async def open_from(sequence: int) -> AsyncIterator[pb.WatchVersionsResponse]:
            with rpc_errors(_PEER):
                stream = self._stub.WatchVersions(
                    pb.WatchVersionsRequest(model=model, after_sequence=sequence)
                )
                async for change in stream:
                    yield change

        stream = open_from(after)

        async def following() -> pb.WatchVersionsResponse:
            nonlocal stream
            try:
                return await anext(stream)
            except (PodiumError, StopAsyncIteration):
                stream = open_from(after)
                raise

        while True:
            change = await retry_unavailable(following, timeout_s=_RETRY_SECONDS)
            after = change.sequence
            yield change


async def _describe(files: Mapping[str, transfer.BlobSource]) -> list[pb.File]:
    """By path, as a manifest has them."""
    paths = sorted(files)
    digests = await asyncio.gather(
        *(asyncio.to_thread(transfer.digest_of, files[path]) for path in paths)
    )
    return [
        pb.File(path=path, size=transfer.size_of(files[path]), digest=digest)
        for path, digest in zip(paths, digests, strict=True)
    ]


async def _all(transfers: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs them together; the first failure ends the others before it is raised."""
    tasks = [asyncio.ensure_future(each) for each in transfers]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _publish(partial: Path, destination: Path) -> None:
    if destination.exists():
        shutil.rmtree(partial)
        raise FileExistsError(destination)
    partial.rename(destination)
