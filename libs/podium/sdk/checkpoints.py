"""Checkpoint versions in the registry: list, read, download."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from podium.core.errors import DataLossError, UnavailableError
from podium.registry.v1 import registry_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2_grpc as pb_grpc
from podium.rpc import rpc_errors
from podium.sdk.paging import pages

if TYPE_CHECKING:
    import grpc

_PAGE = 500
_ATTEMPTS = 5
_DOWNLOAD_SECONDS = 3600.0


class Checkpoints:
    """The reading half of RegistryService. Raises `podium.core.errors`, as the contract says."""

    def __init__(self, channel: Callable[[], grpc.aio.Channel]) -> None:
        self._channel = channel

    @property
    def _stub(self) -> pb_grpc.RegistryServiceAsyncStub:
        return pb_grpc.RegistryServiceStub(self._channel())

    async def models(self) -> AsyncGenerator[pb.Model, None]:
        """The models, by name."""
        request = pb.ListModelsRequest(page_size=_PAGE)
        with rpc_errors("registry"):
            async for model in pages(self._stub.ListModels, request, lambda r: r.models):
                yield model

    async def list(self, model: str) -> AsyncGenerator[pb.Version, None]:
        """The versions of a model, newest first."""
        request = pb.ListVersionsRequest(model=model, page_size=_PAGE)
        with rpc_errors("registry"):
            async for version in pages(self._stub.ListVersions, request, lambda r: r.versions):
                yield version

    async def get(self, model: str, version: int | str = "latest") -> pb.Version:
        """Reads a version by number or alias."""
        request = (
            pb.GetVersionRequest(model=model, version=version)
            if isinstance(version, int)
            else pb.GetVersionRequest(model=model, alias=version)
        )
        with rpc_errors("registry"):
            return (await self._stub.GetVersion(request)).version

    async def download(self, version: pb.Version, folder: Path, prefix: str = "") -> Sequence[Path]:
        """Writes a version's files into `folder`, those under `prefix` only.

        The prefix is taken off their paths. Each file appears whole, after
        its digest was verified.

        Raises:
            DataLossError: the bytes do not match the manifest.
        """
        written = []
        for file in version.manifest.files:
            if file.path.startswith(prefix):
                target = folder / file.path.removeprefix(prefix)
                await self._download_file(file, target)
                written.append(target)
        return written

    async def _download_file(self, file: pb.File, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.part")
        draft.unlink(missing_ok=True)
        digest, offset = hashlib.sha256(), 0
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async for data in self._chunks(file.digest, offset):
                    await asyncio.to_thread(_append, draft, data)
                    digest.update(data)
                    offset += len(data)
                break
            except UnavailableError:
                if attempt == _ATTEMPTS:
                    raise
                await asyncio.sleep(0.5 * attempt)
        if not file.size:
            draft.touch()
        if f"sha256:{digest.hexdigest()}" != file.digest:
            draft.unlink(missing_ok=True)
            raise DataLossError(f"{file.path} does not match its digest; download it again")
        draft.replace(target)

    async def _chunks(self, digest: str, offset: int) -> AsyncGenerator[bytes, None]:
        call = self._stub.DownloadBlob(
            pb.DownloadBlobRequest(digest=digest, offset=offset), timeout=_DOWNLOAD_SECONDS
        )
        try:
            with rpc_errors("registry"):
                async for chunk in call:
                    yield chunk.data
        finally:
            call.cancel()


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
