"""Unfinished uploads on local disk: appended in order, resumable after a crash."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from podium.core.errors import (
    AbortedError,
    DataLossError,
    NotFoundError,
    OutOfRangeError,
    ResourceExhaustedError,
)

_SYNC_BYTES = 16 << 20


@dataclass
class Upload:
    """One upload: its bytes so far are the file's length."""

    upload_id: str
    digest: str
    size: int
    path: Path
    writer: asyncio.Lock = field(default_factory=asyncio.Lock)
    _unsynced: int = 0

    @property
    def persisted_size(self) -> int:
        """Bytes that a restart would find."""
        return self.path.stat().st_size if self.path.exists() else 0

    def append(self, data: bytes, offset: int) -> None:
        """Appends a chunk at its offset. Blocking.

        Raises:
            OutOfRangeError: WRONG_OFFSET: the chunk does not continue the
                file, or goes past the declared size.
            ResourceExhaustedError: STORAGE_FULL; what was there stays.
        """
        persisted = self.persisted_size
        if offset != persisted:
            raise OutOfRangeError(
                f"chunk at offset {offset} does not continue the upload at {persisted}",
                reason="WRONG_OFFSET",
                metadata={"offset": str(offset), "persisted_size": str(persisted)},
            )
        if offset + len(data) > self.size:
            raise OutOfRangeError(
                f"chunk ends at {offset + len(data)}, past the declared size {self.size}",
                reason="PAST_DECLARED_SIZE",
                metadata={"persisted_size": str(persisted), "size": str(self.size)},
            )
        with self.path.open("ab") as file:
            try:
                file.write(data)
                file.flush()
                self._unsynced += len(data)
                if self._unsynced >= _SYNC_BYTES:
                    os.fsync(file.fileno())
                    self._unsynced = 0
            except OSError as error:
                # A part of the chunk may be on disk; its crc32c covers only the whole.
                os.truncate(self.path, persisted)
                raise _full(error) from error

    def verify(self) -> None:
        """Checks the whole file against the digest. Blocking.

        Raises:
            DataLossError: another digest; the upload begins again at 0.
        """
        hasher = hashlib.sha256()
        with self.path.open("rb") as file:
            while block := file.read(1 << 20):
                hasher.update(block)
            os.fsync(file.fileno())
        actual = f"sha256:{hasher.hexdigest()}"
        if actual != self.digest:
            os.truncate(self.path, 0)
            raise DataLossError(
                f"the uploaded bytes are {actual}, not {self.digest}",
                reason="WRONG_DIGEST",
                metadata={"actual": actual, "declared": self.digest},
            )


class Staging:
    """The uploads of one registry process, kept in a folder."""

    def __init__(self, folder: Path) -> None:
        """Finds the uploads that an earlier process left."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._uploads: dict[str, Upload] = {}
        for record in folder.glob("*.json"):
            raw = json.loads(record.read_text())
            self._add(record.stem, raw["digest"], raw["size"])

    def start(self, digest: str, size: int) -> Upload:
        """The unfinished upload of a digest and size, or a new one. Blocking.

        Raises:
            ResourceExhaustedError: STORAGE_FULL.
        """
        upload_id = hashlib.sha256(f"{digest}/{size}".encode()).hexdigest()[:32]
        if upload_id in self._uploads:
            return self._uploads[upload_id]
        record = self._folder / f"{upload_id}.json"
        draft = record.with_suffix(".draft")
        try:
            draft.write_text(json.dumps({"digest": digest, "size": size}))
            draft.replace(record)
            (self._folder / f"{upload_id}.part").touch()
        except OSError as error:
            raise _full(error) from error
        return self._add(upload_id, digest, size)

    def get(self, upload_id: str) -> Upload:
        """An unfinished upload. Raises NotFoundError."""
        try:
            return self._uploads[upload_id]
        except KeyError:
            raise NotFoundError(
                f"no unfinished upload {upload_id!r}", reason="UPLOAD_NOT_FOUND"
            ) from None

    def finish(self, upload: Upload) -> None:
        """Forgets an upload and its bytes."""
        self._uploads.pop(upload.upload_id, None)
        upload.path.unlink(missing_ok=True)
        upload.path.with_suffix(".json").unlink(missing_ok=True)

    def expire(self, ttl_seconds: float) -> int:
        """Forgets uploads without a byte for that long; returns how many."""
        limit = time.time() - ttl_seconds
        old = [
            upload
            for upload in self._uploads.values()
            if not upload.writer.locked() and upload.path.stat().st_mtime < limit
        ]
        for upload in old:
            self.finish(upload)
        return len(old)

    @property
    def count(self) -> int:
        """Unfinished uploads."""
        return len(self._uploads)

    def _add(self, upload_id: str, digest: str, size: int) -> Upload:
        path = self._folder / f"{upload_id}.part"
        path.touch()
        upload = Upload(upload_id, digest, size, path)
        self._uploads[upload_id] = upload
        return upload


def one_writer(upload: Upload) -> asyncio.Lock:
    """The upload's lock. Raises AbortedError when another call holds it."""
    if upload.writer.locked():
        raise AbortedError(
            "another writer has this upload",
            reason="UPLOAD_BUSY",
            metadata={"upload_id": upload.upload_id},
        )
    return upload.writer


def _full(error: OSError) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return ResourceExhaustedError("the registry's disk is full", reason="STORAGE_FULL")
    return error
