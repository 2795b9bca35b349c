"""sha256 names of content."""

from __future__ import annotations

import hashlib
import re

from podium.core.errors import InvalidArgumentError, Violation

_PATTERN = re.compile(r"sha256:[0-9a-f]{64}")


def check_digest(digest: str, field: str) -> None:
    """Raises InvalidArgumentError, naming `field`, for a malformed digest."""
    if not _PATTERN.fullmatch(digest):
        raise InvalidArgumentError(
            violations=[
                Violation(field, f"got {digest!r}; allowed is sha256: and 64 lower-case hex digits")
            ]
        )


def of_bytes(data: bytes) -> str:
    """`sha256:…` of some bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
