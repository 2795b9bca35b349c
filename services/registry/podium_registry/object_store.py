"""Blobs in an object store: the one module that knows obstore."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError as ObjectExistsError
from obstore.store import LocalStore, ObjectStore, from_url
from podium.core.errors import NotFoundError, ResourceExhaustedError, UnavailableError

_READ_BYTES = 1 << 20


class BlobStore(Protocol):
    """Immutable bytes under a digest."""

    async def put(self, digest: str, source: Path) -> None:
        """Stores a file's bytes; a blob that is there already is left alone."""
        ...

    async def size(self, digest: str) -> int | None:
        """Bytes of a blob; None when it is not there."""
        ...

    def read(self, digest: str, offset: int, size: int) -> AsyncIterator[bytes]:
        """The bytes from an offset, in pieces of at most 1 MiB."""
        ...

    async def delete(self, digest: str) -> None:
        """Removes a blob; one that is not there is no error."""
        ...


class ObjectBlobStore:
    """`BlobStore` over a folder, S3, GCS or Azure, by URL."""

    def __init__(self, url: str) -> None:
        """Opens the store; a local folder is made."""
        self._store: ObjectStore = _open(url)

    async def put(self, digest: str, source: Path) -> None:
        """See `BlobStore`.

        Raises:
            ResourceExhaustedError: STORAGE_FULL.
            UnavailableError: the store cannot be reached.
        """
        try:
            await obstore.put_async(self._store, _key(digest), source, mode="create")
        except ObjectExistsError:
            return
        except Exception as error:
            raise _translate(error) from error

    async def size(self, digest: str) -> int | None:
        """See `BlobStore`."""
        try:
            return int((await obstore.head_async(self._store, _key(digest)))["size"])
        except FileNotFoundError:
            return None
        except Exception as error:
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
                raise NotFoundError(f"blob {digest} is not stored") from error
            except Exception as error:
                raise _translate(error) from error
            yield bytes(data)
            offset += length

    async def delete(self, digest: str) -> None:
        """See `BlobStore`."""
        try:
            await obstore.delete_async(self._store, _key(digest))
        except FileNotFoundError:
            return
        except Exception as error:
            raise _translate(error) from error


def _open(url: str) -> ObjectStore:
    parts = urlsplit(url)
    if parts.scheme == "file":
        folder = Path(unquote(parts.path))
        folder.mkdir(parents=True, exist_ok=True)
        return LocalStore(folder)
    return from_url(url)


def _key(digest: str) -> str:
    name = digest.removeprefix("sha256:")
    return f"sha256/{name[:2]}/{name}"


def _translate(error: Exception) -> Exception:
    text = str(error).lower()
    if "no space left" in text or "os error 28" in text or "quota" in text:
        return ResourceExhaustedError("the object store is full", reason="STORAGE_FULL")
    return UnavailableError("the object store cannot be reached", reason="STORE_UNAVAILABLE")
