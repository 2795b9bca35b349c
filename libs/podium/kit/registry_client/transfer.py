"""Moves one blob, resuming where it stopped."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import google_crc32c

from podium.core.errors import DataLossError, PodiumError, UnavailableError
from podium.kit.rpc import retry_unavailable, rpc_errors
from podium.registry.v1 import registry_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2_grpc as pb_grpc

CHUNK_BYTES = 1 << 20
PEER = "registry"
_SENT_BY_ANOTHER = frozenset({"UPLOAD_BUSY", "UPLOAD_NOT_FOUND", "WRONG_OFFSET"})

BlobSource = Path | bytes


def digest_of(source: BlobSource) -> str:
    """`sha256:…` of a file or of bytes. Blocking."""
    if isinstance(source, bytes):
        return f"sha256:{hashlib.sha256(source).hexdigest()}"
    with source.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def size_of(source: BlobSource) -> int:
    """Bytes of a file or of bytes."""
    return len(source) if isinstance(source, bytes) else source.stat().st_size


async def upload(
    stub: pb_grpc.RegistryServiceAsyncStub, source: BlobSource, digest: str, deadline_s: float
) -> None:
    """Uploads a blob, through restarts of the registry.

    Raises:
        PodiumError: what the registry refused it with.
        UnavailableError: the registry stayed away, or another sender of the
            same bytes was slow, for `deadline_s` seconds.
    """

    async def attempt() -> None:
        try:
            with rpc_errors(PEER):
                started = await stub.StartUpload(
                    pb.StartUploadRequest(digest=digest, size=size_of(source))
                )
                if started.complete:
                    return
                await stub.UploadBlob(
                    _messages(source, started.upload_id, started.persisted_size),
                    timeout=deadline_s,
                )
        except PodiumError as error:
            if error.reason not in _SENT_BY_ANOTHER:
                raise
            raise UnavailableError(error.message, reason=error.reason) from error

    await retry_unavailable(attempt, timeout_s=deadline_s)


async def _messages(
    source: BlobSource, upload_id: str, offset: int
) -> AsyncIterator[pb.UploadBlobRequest]:
    sent = False
    async for data in _read(source, offset):
        yield pb.UploadBlobRequest(
            upload_id="" if sent else upload_id,
            offset=offset,
            data=data,
            crc32c=google_crc32c.value(data),
        )
        sent = True
        offset += len(data)
    if not sent:
        yield pb.UploadBlobRequest(upload_id=upload_id, offset=offset)


async def _read(source: BlobSource, offset: int) -> AsyncIterator[bytes]:
    if isinstance(source, bytes):
        for start in range(offset, len(source), CHUNK_BYTES):
            yield source[start : start + CHUNK_BYTES]
        return
    with source.open("rb") as file:
        file.seek(offset)
        while data := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield data


async def download(
    stub: pb_grpc.RegistryServiceAsyncStub, digest: str, target: Path, deadline_s: float
) -> None:
    """Downloads a blob to a file, resuming it, and verifies its sha256.

    Raises:
        DataLossError: a chunk's crc32c or the whole's sha256 is wrong; the
            file is removed.
        NotFoundError: the registry lacks the blob.
        UnavailableError: the registry stayed away for `deadline_s` seconds.
    """

    async def attempt() -> None:
        offset = await asyncio.to_thread(_length, target)
        with rpc_errors(PEER), target.open("ab") as file:
            stream = stub.DownloadBlob(
                pb.DownloadBlobRequest(digest=digest, offset=offset), timeout=deadline_s
            )
            async for chunk in stream:
                if chunk.offset != offset or google_crc32c.value(chunk.data) != chunk.crc32c:
                    raise DataLossError(f"a chunk of {digest} came damaged", reason="WRONG_CRC32C")
                await asyncio.to_thread(file.write, chunk.data)
                offset += len(chunk.data)

    try:
        await retry_unavailable(attempt, timeout_s=deadline_s)
        actual = await asyncio.to_thread(digest_of, target)
        if actual != digest:
            raise DataLossError(
                f"blob came as {actual}, not {digest}",
                reason="WRONG_DIGEST",
                metadata={"actual": actual, "declared": digest},
            )
    except PodiumError as error:
        if not isinstance(error, UnavailableError):
            await asyncio.to_thread(target.unlink, missing_ok=True)
        raise


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
