"""Unfinished uploads on local disk: appended in order, resumable after a crash."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import google_crc32c
from podium.core.errors import AbortedError, DataLossError, NotFoundError, OutOfRangeError

from podium_registry.adapters.disk import on_disk

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
_SYNC_BYTES = 16 << 20


@dataclass
class Upload:
    """One upload: its bytes so far are the file's length."""

    upload_id: str
    digest: str
    size: int
    path: Path
    writer: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the call that has the upload."""
    _file: threading.RLock = field(default_factory=threading.RLock)
    # A cancelled call gives `writer` back while its thread still writes.
    _synced: int = 0
    _finished: bool = False

    @property
    def received(self) -> int:
        """Bytes in the file."""
        return self.path.stat().st_size if self.path.exists() else 0

    def persist(self) -> int:
        """Bytes that even a loss of power leaves; what was received is synced first. Blocking.

        Raises:
            NotFoundError: the upload has ended.
            PodiumError: as `on_disk`.
        """
        with self._file, on_disk(self._synced):
            self._check_unfinished()
            if not self.path.exists():
                # Somebody has tidied up.
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.touch()
            received = self.received
            if self._synced != received:
                _sync(self.path)
                self._synced = received
            return received

    def append(self, data: bytes, offset: int) -> None:
        """Appends a chunk at its offset. Blocking.

        Raises:
            NotFoundError: the upload has ended.
            OutOfRangeError: WRONG_OFFSET: the chunk does not continue the
                file; PAST_DECLARED_SIZE.
            PodiumError: as `on_disk`; what was there stays.
        """
        with self._file:
            self._check_unfinished()
            received = self.received
            if offset != received:
                persisted = self.persist()
                raise OutOfRangeError(
                    f"chunk at offset {offset} does not continue the upload at {persisted}",
                    reason="WRONG_OFFSET",
                    metadata={"offset": str(offset), "persisted_size": str(persisted)},
                )
            if offset + len(data) > self.size:
                persisted = self.persist()
                raise OutOfRangeError(
                    f"chunk ends at {offset + len(data)}, past the declared size {self.size}",
                    reason="PAST_DECLARED_SIZE",
                    metadata={"persisted_size": str(persisted), "size": str(self.size)},
                )
            with on_disk(received):
                try:
                    with self.path.open("ab") as file:
                        file.write(data)
                except OSError:
                    # A part of the chunk may be on disk; its crc32c covers only the whole.
                    with suppress(OSError):
                        os.truncate(self.path, received)
                    raise
            if self.received - self._synced >= _SYNC_BYTES:
                self.persist()

    def verify(self) -> bytes:
        """Checks the whole file against the digest. Blocking.

        Returns:
            The crc32c of each MiB, 4 bytes each, big-endian.

        Raises:
            NotFoundError: the upload has ended.
            DataLossError: another digest; the upload begins again at 0.
            PodiumError: as `on_disk`.
        """
        with self._file, on_disk(self._synced):
            self._check_unfinished()
            hasher = hashlib.sha256()
            checks = bytearray()
            with self.path.open("rb") as file:
                while block := file.read(CHUNK_BYTES):
                    hasher.update(block)
                    checks += google_crc32c.value(block).to_bytes(4, "big")
            actual = f"sha256:{hasher.hexdigest()}"
            if actual != self.digest:
                os.truncate(self.path, 0)
                self._synced = 0
                raise DataLossError(
                    f"the uploaded bytes are {actual}, not {self.digest}",
                    reason="WRONG_DIGEST",
                    metadata={"actual": actual, "declared": self.digest, "persisted_size": "0"},
                )
            return bytes(checks)

    def finish(self) -> None:
        """Deletes the bytes; from now on the upload has ended. Blocking.

        Raises:
            PodiumError: as `on_disk`; it has ended all the same.
        """
        with self._file, on_disk(self._synced):
            if self._finished:
                return
            self._finished = True
            self.path.unlink(missing_ok=True)
            self.path.with_suffix(".json").unlink(missing_ok=True)

    def _check_unfinished(self) -> None:
        # The path may by now be that of a new upload of the same content.
        if self._finished:
            raise _not_found(self.upload_id)


class Staging:
    """The uploads of one registry process, kept in a folder that is its own."""

    def __init__(self, folder: Path) -> None:
        """Finds the uploads that an earlier process left.

        Raises:
            PodiumError: as `on_disk`.
        """
        self._folder = folder
        self._lock = threading.Lock()
        self._uploads: dict[str, Upload] = {}
        with on_disk(0):
            folder.mkdir(parents=True, exist_ok=True)
            self._find(folder)

    def _find(self, folder: Path) -> None:
        for record in folder.glob("*.json"):
            try:
                raw = json.loads(record.read_text(encoding="utf-8"))
                self._add(record.stem, str(raw["digest"]), int(raw["size"]))
            except (ValueError, KeyError, TypeError):
                logger.warning(
                    "dropping an unreadable upload record", extra={"upload": record.stem}
                )
                record.unlink()
        for path in folder.iterdir():
            if path.suffix != ".json" and path.stem not in self._uploads:
                path.unlink()

    def start(self, digest: str, size: int) -> Upload:
        """The unfinished upload of a digest and size, or a new one. Blocking.

        Raises:
            PodiumError: as `on_disk`.
        """
        # Names the content, so that a finished upload can still be told from an unknown one.
        upload_id = f"{digest.removeprefix('sha256:')}-{size:x}"
        with self._lock:
            if upload_id in self._uploads:
                return self._uploads[upload_id]
            record = self._folder / f"{upload_id}.json"
            draft = record.with_suffix(".draft")
            with on_disk(0):
                try:
                    self._folder.mkdir(parents=True, exist_ok=True)
                    draft.write_text(json.dumps({"digest": digest, "size": size}), encoding="utf-8")
                    _sync(draft)
                    draft.replace(record)
                    upload = self._add(upload_id, digest, size)
                    _sync(self._folder)
                except OSError:
                    with suppress(OSError):
                        draft.unlink(missing_ok=True)
                    raise
            return upload

    def get(self, upload_id: str) -> Upload:
        """An unfinished upload. Raises NotFoundError."""
        try:
            return self._uploads[upload_id]
        except KeyError:
            raise _not_found(upload_id) from None

    def finish(self, upload: Upload) -> None:
        """Forgets an upload and its bytes. Blocking."""
        with self._lock:
            upload.finish()
            if self._uploads.get(upload.upload_id) is upload:
                del self._uploads[upload.upload_id]

    def expire(self, ttl_seconds: float) -> int:
        """Forgets uploads without a byte for that long; returns how many. Blocking."""
        limit = time.time() - ttl_seconds
        old = [
            upload
            for upload in list(self._uploads.values())
            if not upload.writer.locked()
            and upload.path.exists()
            and upload.path.stat().st_mtime < limit
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
        if not path.exists():
            path.touch()
        upload = Upload(upload_id, digest, size, path)
        self._uploads[upload_id] = upload
        return upload


def content_of(upload_id: str) -> tuple[str, int] | None:
    """The digest and size that an id of ours was made for; None for any other text."""
    digits, _, size = upload_id.partition("-")
    try:
        return f"sha256:{digits}", int(size, 16)
    except ValueError:
        return None


def _not_found(upload_id: str) -> NotFoundError:
    return NotFoundError(f"no unfinished upload {upload_id!r}", reason="UPLOAD_NOT_FOUND")


def one_writer(upload: Upload) -> asyncio.Lock:
    """The upload's lock. Raises AbortedError when another call holds it."""
    if upload.writer.locked():
        raise AbortedError(
            "another writer has this upload",
            reason="UPLOAD_BUSY",
            metadata={"upload_id": upload.upload_id},
        )
    return upload.writer


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
