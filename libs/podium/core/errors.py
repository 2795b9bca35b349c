"""Every error that Podium raises on purpose.

    PodiumError
    ├── InvalidArgumentError      a field is wrong; names it, what came, what is allowed
    ├── OutOfRangeError           past the end of something
    ├── NotFoundError
    ├── AlreadyExistsError
    ├── FailedPreconditionError   right request, wrong state
    ├── AbortedError              lost a race; read again and repeat
    ├── PermissionDeniedError
    ├── UnauthenticatedError
    ├── ResourceExhaustedError    full, busy or over quota
    ├── UnavailableError          not now; the same call may work later
    ├── DeadlineExceededError
    ├── RequestCancelledError     the caller gave up
    ├── DataLossError             stored or received bytes are damaged
    ├── UnimplementedError
    └── InternalError             a defect of ours; carries an id that is in the log

``podium.kit.rpc.status`` holds the one table from these to gRPC status codes, and
back. `reason` is UPPER_SNAKE and stable, for programs; the message is for
people; `metadata` holds every dynamic value of the message as strings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

REQUESTS_DID_NOT_END = "REQUESTS_DID_NOT_END"
"""Reason of an UnavailableError of a pod that is there: its weights are still in use."""
WEIGHTS_NOT_EXCHANGED = "WEIGHTS_NOT_EXCHANGED"
"""Likewise: its engine did not take them, and has those of before, if any."""


@dataclass(frozen=True)
class Violation:
    """One thing that is wrong with a request or a file.

    `field` is the path in the contract (``training.loss.epsilon``), `line` the
    1-based line of the file it came from, or 0.
    """

    field: str
    description: str
    line: int = 0

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return (
            f"{where}{self.field}: {self.description}"
            if self.field
            else f"{where}{self.description}"
        )


class PodiumError(Exception):
    """Root of the tree. `reason` defaults to the class's own."""

    default_reason = "UNKNOWN"

    def __init__(
        self, message: str, *, reason: str = "", metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.metadata = dict(metadata or {})


class InvalidArgumentError(PodiumError):
    """One or more fields are wrong; `violations` lists all of them at once."""

    default_reason = "INVALID_ARGUMENT"

    def __init__(
        self,
        message: str = "",
        *,
        violations: Sequence[Violation] = (),
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            message or "; ".join(map(str, violations)), reason=reason, metadata=metadata
        )
        self.violations = tuple(violations)


class OutOfRangeError(PodiumError):
    """An offset, sequence or size lies past what exists or is allowed."""

    default_reason = "OUT_OF_RANGE"


class NotFoundError(PodiumError):
    """What the request names does not exist."""

    default_reason = "NOT_FOUND"


class AlreadyExistsError(PodiumError):
    """What the request would create exists, and differs."""

    default_reason = "ALREADY_EXISTS"


class FailedPreconditionError(PodiumError):
    """The request is right, but not in this state."""

    default_reason = "FAILED_PRECONDITION"


class AbortedError(PodiumError):
    """Somebody else was first; read again and repeat."""

    default_reason = "ABORTED"


class PermissionDeniedError(PodiumError):
    """The caller may not do this."""

    default_reason = "PERMISSION_DENIED"


class UnauthenticatedError(PodiumError):
    """The caller did not say who it is, or not credibly."""

    default_reason = "UNAUTHENTICATED"


class ResourceExhaustedError(PodiumError):
    """A queue, disk, quota or message limit is reached."""

    default_reason = "RESOURCE_EXHAUSTED"


class UnavailableError(PodiumError):
    """The service cannot answer now; an idempotent call may be repeated."""

    default_reason = "UNAVAILABLE"


class DeadlineExceededError(PodiumError):
    """The call's deadline passed."""

    default_reason = "DEADLINE_EXCEEDED"


class RequestCancelledError(PodiumError):
    """The caller cancelled the call."""

    default_reason = "CANCELLED"


class DataLossError(PodiumError):
    """Bytes do not match their digest."""

    default_reason = "DATA_LOSS"


class UnimplementedError(PodiumError):
    """The server does not know the method, or this build lacks the feature."""

    default_reason = "UNIMPLEMENTED"


class InternalError(PodiumError):
    """A defect; `metadata['error_id']` is in the server's log."""

    default_reason = "INTERNAL"
