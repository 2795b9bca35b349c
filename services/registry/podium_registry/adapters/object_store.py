"""Blobs in an object store: the one module that knows obstore."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError as ObjectExistsError
from obstore.exceptions import BaseError as StoreError
from obstore.exceptions import PermissionDeniedError as StorePermissionError
from obstore.exceptions import UnauthenticatedError as StoreCredentialsError
from obstore.store import LocalStore, ObjectStore, from_url
from podium.core.errors import (
    FailedPreconditionError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)

from podium_registry.adapters.disk import on_disk

logger = logging.getLogger(__name__)

# An outage ends by itself; a wrong credential is for the operator to mend.
_REFUSALS = (StorePermissionError, StoreCredentialsError, PermissionError)
_PIECE_BYTES = 1 << 20
_READ_BYTES = 8 << 20
_SINGLE_PUT_BYTES = 32 << 20


class BlobStore(Protocol):
    """Immutable bytes under a digest."""

    async def put(self, digest: str, source: Path, *, replace: bool = False) -> None:
        """Stores a file's bytes for good; a blob that is there already is left alone.

        Args:
            replace: what is there is damaged, whatever its length.
        """
        ...

    async def size(self, digest: str) -> int | None:
        """Bytes of a blob; None when it is not there."""
        ...

    def read(self, digest: str, offset: int, size: int) -> AsyncIterator[bytes]:
        """The bytes from an offset, in pieces of 1 MiB and a rest."""
        ...

    async def delete(self, digest: str) -> None:
        """Removes a blob; one that is not there is no error."""
        ...


class ObjectBlobStore:
    """`BlobStore` over a folder, memory, S3, GCS or Azure, by URL."""

    def __init__(self, url: str) -> None:
        """Opens the store; a local folder is made."""
        self._store, self._folder = _open(url)

    async def put(self, digest: str, source: Path, *, replace: bool = False) -> None:
        """See `BlobStore`.

        Raises:
            ResourceExhaustedError: STORAGE_FULL.
            UnavailableError: the store cannot be reached.
            FailedPreconditionError: STORE_FORBIDDEN.
        """
        length = await asyncio.to_thread(os.path.getsize, source)
        stored = await self.size(digest)
        if stored == length and not replace:
            return
        key = _key(digest)
        try:
            # A conditional put is one request, held in memory. Greater blobs go in
            # parts, and those that are there with a wrong length are mended: a
            # second writer of the same digest writes the same bytes.
            if length <= _SINGLE_PUT_BYTES and stored is None:
                await obstore.put_async(self._store, key, source, mode="create")
            else:
                await obstore.put_async(self._store, key, source, use_multipart=True)
        except ObjectExistsError:
            pass
        except (StoreError, OSError) as error:
            raise _translate(error) from error
        if self._folder is not None:
            # The store itself does not; a version must not outlive its blobs.
            with on_disk(length):
                await asyncio.to_thread(_sync, self._folder / key, self._folder)

    async def size(self, digest: str) -> int | None:
        """See `BlobStore`."""
        try:
            return int((await obstore.head_async(self._store, _key(digest)))["size"])
        except FileNotFoundError:
            return None
        except (StoreError, OSError) as error:
            raise _translate(error) from error

    async def read(self, digest: str, offset: int, size: int) -> AsyncIterator[bytes]:
        """See `BlobStore`. Raises NotFoundError when the blob is gone."""
        while offset < size:
            length = min(_READ_BYTES, size - offset)
            try:
                data = await obstore.get_range_async(
                    self._store, _key(digest), start=offset, length=length
                )
            except FileNotFoundError as error:
                raise NotFoundError(
                    f"blob {digest} is not stored", reason="BLOB_NOT_FOUND"
                ) from error
            except (StoreError, OSError) as error:
                raise _translate(error) from error
            view = memoryview(data)
            for start in range(0, length, _PIECE_BYTES):
                yield bytes(view[start : start + _PIECE_BYTES])
            offset += length

    async def delete(self, digest: str) -> None:
        """See `BlobStore`."""
        try:
            await obstore.delete_async(self._store, _key(digest))
        except FileNotFoundError:
            return
        except (StoreError, OSError) as error:
            raise _translate(error) from error


def _open(url: str) -> tuple[ObjectStore, Path | None]:
    parts = urlsplit(url)
    if parts.scheme == "file":
        folder = Path(unquote(parts.path))
        with on_disk(0):
            folder.mkdir(parents=True, exist_ok=True)
        return LocalStore(folder), folder
    return from_url(url), None


def _key(digest: str) -> str:
    name = digest.removeprefix("sha256:")
    return f"sha256/{name[:2]}/{name}"


def _sync(path: Path, root: Path) -> None:
    for each in (path, path.parent, path.parent.parent, root):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _translate(error: Exception) -> Exception:
    text = str(error).lower()
    if "no space left" in text or "os error 28" in text or "quota" in text:
        return ResourceExhaustedError("the object store is full", reason="STORAGE_FULL")
    # Its words name paths, buckets and hosts: for the log alone.
    logger.warning("object store: %s", error)
    if isinstance(error, _REFUSALS):
        return FailedPreconditionError(
            "the object store refuses the registry: its credentials are wrong, have expired or"
            " lack a right; the registry's log has the store's words",
            reason="STORE_FORBIDDEN",
        )
    return UnavailableError("the object store cannot be reached", reason="STORE_UNAVAILABLE")
