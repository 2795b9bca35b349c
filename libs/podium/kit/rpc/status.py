"""The one table between exceptions and gRPC status codes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import grpc

from podium.core import errors

CODES: Mapping[type[errors.PodiumError], grpc.StatusCode] = MappingProxyType(
    {
        errors.InvalidArgumentError: grpc.StatusCode.INVALID_ARGUMENT,
        errors.OutOfRangeError: grpc.StatusCode.OUT_OF_RANGE,
        errors.NotFoundError: grpc.StatusCode.NOT_FOUND,
        errors.AlreadyExistsError: grpc.StatusCode.ALREADY_EXISTS,
        errors.FailedPreconditionError: grpc.StatusCode.FAILED_PRECONDITION,
        errors.AbortedError: grpc.StatusCode.ABORTED,
        errors.PermissionDeniedError: grpc.StatusCode.PERMISSION_DENIED,
        errors.UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
        errors.ResourceExhaustedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
        errors.UnavailableError: grpc.StatusCode.UNAVAILABLE,
        errors.DeadlineExceededError: grpc.StatusCode.DEADLINE_EXCEEDED,
        errors.RequestCancelledError: grpc.StatusCode.CANCELLED,
        errors.DataLossError: grpc.StatusCode.DATA_LOSS,
        errors.UnimplementedError: grpc.StatusCode.UNIMPLEMENTED,
        errors.InternalError: grpc.StatusCode.INTERNAL,
    }
)

_EXCEPTIONS: Mapping[grpc.StatusCode, type[errors.PodiumError]] = MappingProxyType(
    {code: kind for kind, code in CODES.items()}
    # A server that does not use this kit: its defect, as far as we can tell.
    | {grpc.StatusCode.UNKNOWN: errors.InternalError}
)


def code_of(error: errors.PodiumError) -> grpc.StatusCode:
    """The code of an exception, or of its nearest ancestor that has one."""
    for kind in type(error).__mro__:
        if kind in CODES:
            return CODES[kind]
    return grpc.StatusCode.INTERNAL


def exception_of(code: grpc.StatusCode) -> type[errors.PodiumError]:
    """The exception of a code.

    Raises:
        KeyError: for OK, which is no error.
    """
    return _EXCEPTIONS[code]


_BY_NUMBER: Mapping[int, grpc.StatusCode] = MappingProxyType(
    {code.value[0]: code for code in grpc.StatusCode}
)


def code_of_context(context: grpc.aio.ServicerContext[Any, Any]) -> grpc.StatusCode:
    """The code that a servicer set by hand, OK when it set none."""
    code: grpc.StatusCode | int | None = context.code()
    return code if isinstance(code, grpc.StatusCode) else _BY_NUMBER[code or 0]
