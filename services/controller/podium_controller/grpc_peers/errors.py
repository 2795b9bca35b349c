"""What the other services answer, as a job has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from podium.core.errors import (
    FailedPreconditionError,
    PermissionDeniedError,
    PodiumError,
    UnauthenticatedError,
    UnavailableError,
)
from podium.kit.rpc import rpc_errors

from podium_controller.domain.errors import SERVICES, STORE_FORBIDDEN, TOKEN_REFUSED


@contextmanager
def peer_errors(peer: str) -> Iterator[None]:
    """As `podium.kit.rpc.rpc_errors`, for a service of this installation.

    A token that one of them refuses another is for the operator to set right, and no fault of
    the job, which waits as it does for a service that is away. So is a store that refuses the
    registry.

    Raises:
        UnavailableError: TOKEN_REFUSED or STORE_FORBIDDEN; `peer` is who refuses, or is refused.
        PodiumError: as `rpc_errors`.
    """
    try:
        with rpc_errors(peer):
            yield
    except (UnauthenticatedError, PermissionDeniedError) as error:
        refusing = error.metadata.get("peer", peer)
        if refusing not in SERVICES:
            raise
        raise _away(
            f"{refusing} refuses another service", error, TOKEN_REFUSED, refusing
        ) from error
    except FailedPreconditionError as error:
        if error.reason != STORE_FORBIDDEN:
            raise
        raise _away("registry has no store", error, STORE_FORBIDDEN, "registry") from error


def _away(what: str, error: PodiumError, reason: str, peer: str) -> UnavailableError:
    return UnavailableError(f"{what}: {error.message}", reason=reason, metadata={"peer": peer})
