"""Errors as the Connect protocol says them: `{"code", "message", "details"}`, with the details of
google.rpc that gRPC gives."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from podium.core.errors import PodiumError
from podium.kit.rpc.details import encode
from starlette.responses import JSONResponse, Response

STATUS: Mapping[grpc.StatusCode, int] = {
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DATA_LOSS: 500,
    grpc.StatusCode.UNAUTHENTICATED: 401,
}
"""The codes of HTTP, as google.rpc.Code's comments and the Connect protocol have them."""
_NAMES = {grpc.StatusCode.CANCELLED: "canceled"}
_DETAILS = {
    kind.DESCRIPTOR.full_name: kind
    for kind in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest)
}


def plain(error: PodiumError) -> dict[str, Any]:
    """The error as an object of JSON."""
    code, message, ((_, status),) = encode(error)
    details = status_pb2.Status.FromString(status).details
    return {
        "code": _NAMES.get(code, code.name.lower()),
        "message": message,
        "details": [_detail(each) for each in details],
    }


def answer(
    error: PodiumError, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """The error as an answer, by default with the status of its code."""
    code, _, _ = encode(error)
    return JSONResponse(plain(error), status or STATUS[code], headers)


def _detail(packed: AnyMessage) -> dict[str, Any]:
    name = packed.type_url.rpartition("/")[2]
    message = _DETAILS[name].FromString(packed.value)
    return {
        "type": name,
        # Without padding, as the protocol wants it.
        "value": base64.b64encode(packed.value).decode().rstrip("="),
        "debug": json_format.MessageToDict(message),
    }
