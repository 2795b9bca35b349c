"""Who may call: everybody, or nobody but those whom an authenticator lets in."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from podium.core.errors import FailedPreconditionError, UnauthenticatedError
from podium.rpc.call import Layer, ServerCall


class Authenticator(Protocol):
    """Decides about a call from its metadata."""

    async def authenticate(self, call: ServerCall) -> None:
        """Returns when the call may go on.

        Raises:
            UnauthenticatedError: it is not known who calls.
            PermissionDeniedError: it is known, and they may not.
        """


class BearerTokens:
    """Lets in whoever presents one of a fixed set of tokens."""

    def __init__(self, tokens: Iterable[str]) -> None:
        # Digests have one length, so comparing them tells nothing about a token's.
        self._digests = [_digest(token) for token in tokens if token]
        if not self._digests:
            raise FailedPreconditionError("there is no token that a caller could present")

    @classmethod
    def from_file(cls, path: Path) -> BearerTokens:
        """Reads one token a line; blank lines and lines that begin with `#` do not count.

        Raises:
            FailedPreconditionError: the file cannot be read or holds no token.
        """
        try:
            lines = [line.strip() for line in path.read_text().splitlines()]
        except OSError as error:
            raise FailedPreconditionError(
                f"cannot read the tokens file {path}: {error.strerror}"
            ) from error
        return cls(line for line in lines if line and not line.startswith("#"))

    async def authenticate(self, call: ServerCall) -> None:
        """See `Authenticator`."""
        value = call.metadata.get("authorization", "")
        scheme, _, token = (value if isinstance(value, str) else "").partition(" ")
        given = _digest(token.strip())
        # No short cut: every digest is compared, whichever matches.
        found = [hmac.compare_digest(given, digest) for digest in self._digests]
        if scheme.lower() != "bearer" or not any(found):
            raise UnauthenticatedError(
                "this method needs a valid bearer token in `authorization`",
                reason="INVALID_TOKEN" if token else "TOKEN_MISSING",
            )


def auth_layer(authenticator: Authenticator | None, public_methods: frozenset[str]) -> Layer:
    """Denies what neither is public nor passes the authenticator; None allows all.

    Args:
        public_methods: full paths, `/podium.x.v1.XService/Method`.
    """

    @asynccontextmanager
    async def authenticate(call: ServerCall) -> AsyncIterator[None]:
        if authenticator is not None:
            call.public = call.path in public_methods
            if not call.public:
                await authenticator.authenticate(call)
        yield

    def layer(call: ServerCall) -> AbstractAsyncContextManager[None]:
        return authenticate(call)

    return layer


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
