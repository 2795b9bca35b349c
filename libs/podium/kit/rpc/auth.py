"""Who may call: everybody, or nobody but those whom an authenticator lets in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from podium.core.errors import FailedPreconditionError, UnauthenticatedError
from podium.kit.rpc.call import Layer, ServerCall
from podium.kit.rpc.watched_files import TokensFile, is_one_of


class Authenticator(Protocol):
    """Decides about a call from its metadata."""

    async def authenticate(self, call: ServerCall) -> None:
        """Returns when the call may go on.

        Raises:
            UnauthenticatedError: it is not known who calls.
            PermissionDeniedError: it is known, and they may not.
        """


class BearerTokens:
    """Lets in whoever presents one of a set of tokens."""

    def __init__(self, tokens: Iterable[str] | TokensFile) -> None:
        """A file is read again when it changes.

        Raises:
            FailedPreconditionError: there is no token.
        """
        if isinstance(tokens, TokensFile):
            self._tokens = tokens.current
        else:
            fixed = tuple(token for token in tokens if token)
            self._tokens = lambda: fixed
        if not self._tokens():
            raise FailedPreconditionError("there is no token that a caller could present")

    @classmethod
    def from_file(cls, path: Path) -> BearerTokens:
        """As `TokensFile`, which see."""
        return cls(TokensFile(path))

    async def authenticate(self, call: ServerCall) -> None:
        """See `Authenticator`."""
        value = call.metadata.get("authorization", "")
        scheme, _, token = (value if isinstance(value, str) else "").partition(" ")
        if scheme.lower() != "bearer" or not is_one_of(token.strip(), self._tokens()):
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
