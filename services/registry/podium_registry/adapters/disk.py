"""What a disk refuses, as our own errors."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from podium.core.errors import FailedPreconditionError, ResourceExhaustedError, UnavailableError

logger = logging.getLogger(__name__)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)


@contextmanager
def on_disk(persisted: int) -> Iterator[None]:
    """Inside, what the registry's own disk refuses is told without its paths.

    Args:
        persisted: bytes of the upload that are there in any case.

    Raises:
        ResourceExhaustedError: STORAGE_FULL.
        FailedPreconditionError: STORE_FORBIDDEN: it is read-only, or not the registry's to write.
        UnavailableError: STORE_UNAVAILABLE: it failed.
    """
    try:
        yield
    except OSError as error:
        metadata = {"persisted_size": str(persisted)}
        if error.errno in _FULL:
            text = "the registry's disk is full"
            raise ResourceExhaustedError(text, reason="STORAGE_FULL", metadata=metadata) from error
        logger.warning("disk: %s", error)
        if error.errno in _FORBIDDEN:
            text = f"the registry may not write to its disk: {error.strerror}"
            raise FailedPreconditionError(
                text, reason="STORE_FORBIDDEN", metadata=metadata
            ) from error
        raise UnavailableError(
            f"the registry's disk failed: {error.strerror}",
            reason="STORE_UNAVAILABLE",
            metadata=metadata,
        ) from error
