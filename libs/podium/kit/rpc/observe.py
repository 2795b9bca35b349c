"""Server side of metrics, spans and request logs: one place sees every call end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from podium.kit.rpc.call import ServerCall
from podium.kit.rpc.metrics import SERVER_HANDLED, SERVER_SECONDS
from podium.kit.rpc.status import code_of_context
from podium.kit.telemetry import attributes, exemplar, tracer

logger = logging.getLogger(__name__)

# Of the others the client is the cause (OpenTelemetry's RPC conventions).
_SERVER_FAULTS = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
_tracer = tracer(__name__)


@asynccontextmanager
async def telemetry_layer(call: ServerCall) -> AsyncIterator[None]:
    """Records a SERVER span under the client's, the metrics, and one log line."""
    parent = propagate.extract(
        {key: value for key, value in call.metadata.items() if isinstance(value, str)}
    )
    began = time.perf_counter()
    with _tracer.start_as_current_span(
        call.path.lstrip("/"),
        context=parent,
        kind=SpanKind.SERVER,
        attributes={
            attributes.RPC_SYSTEM_NAME: "grpc",
            attributes.RPC_METHOD: call.path.lstrip("/"),
            attributes.CLIENT_ADDRESS: call.peer,
        },
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
            call.code = _code_of(call)
        except asyncio.CancelledError:
            call.code = _cancelled_code(call, time.perf_counter() - began)
            raise
        except grpc.aio.AbortError:
            call.code = _code_of(call)
            raise
        finally:
            _finish(call, span, time.perf_counter() - began)


def _code_of(call: ServerCall) -> grpc.StatusCode:
    """The code that the error layer chose, or a servicer set by hand."""
    return call.code if call.code is not grpc.StatusCode.OK else code_of_context(call.context)


def _cancelled_code(call: ServerCall, seconds: float) -> grpc.StatusCode:
    left = call.context.time_remaining()
    # Clients round up the time that they tell, by at most a hundredth, but cancel when theirs ends.
    late = left is not None and left <= 0.01 * (seconds + left) + 0.002
    return grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED


def _finish(call: ServerCall, span: trace.Span, seconds: float) -> None:
    code = call.code
    SERVER_HANDLED.labels(call.service, call.method, code.name).inc()
    SERVER_SECONDS.labels(call.service, call.method).observe(seconds, exemplar())
    span.set_attribute(attributes.RPC_RESPONSE_STATUS_CODE, code.name)
    if code in _SERVER_FAULTS:
        span.set_attribute(attributes.ERROR_TYPE, code.name)
        span.set_status(Status(StatusCode.ERROR))
    logger.log(
        logging.DEBUG if code is grpc.StatusCode.OK else logging.INFO,
        "%s %s",
        call.path.lstrip("/"),
        code.name,
        extra={
            "code": code.name,
            "seconds": round(seconds, 4),
            "peer": call.peer,
            **({"error_id": call.error_id} if call.error_id else {}),
        },
    )
