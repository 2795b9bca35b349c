"""Answers with the right status, and lets nothing internal out."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from google.protobuf.message import Message

from podium.core.contract import nul_violations, validate
from podium.core.errors import (
    InternalError,
    InvalidArgumentError,
    PodiumError,
    UnavailableError,
    UnimplementedError,
)
from podium.kit.rpc.call import ServerCall
from podium.kit.rpc.details import encode
from podium.kit.rpc.status import code_of_context

logger = logging.getLogger(__name__)


@asynccontextmanager
async def error_layer(call: ServerCall) -> AsyncIterator[None]:
    """Maps Podium's exceptions by the table; masks all others with an id that is logged."""
    try:
        yield
    except grpc.aio.AbortError:
        raise
    except asyncio.CancelledError as error:
        if call.draining:
            await _abort(call, _draining())
        if not _was_cancelled():
            # Something inside was cancelled, not the call: without an answer
            # the client would wait for its deadline.
            await _abort(call, _masked(call, error))
        raise
    except NotImplementedError as error:
        # The generated base class sets the code and raises this.
        unimplemented = code_of_context(call.context) is grpc.StatusCode.UNIMPLEMENTED
        await _abort(call, _unimplemented(call) if unimplemented else _masked(call, error))
    except Exception as error:
        await _abort(call, _known(error) or _masked(call, error))


def check_request(request: Message) -> None:
    """Holds a request to the rules of its contract.

    Raises:
        InvalidArgumentError: with every violation.
    """
    violations = [*validate(request), *nul_violations(request)]
    if violations:
        raise InvalidArgumentError(violations=violations, reason="INVALID_FIELDS")


async def _abort(call: ServerCall, error: PodiumError) -> None:
    code, message, metadata = encode(error)
    call.code = code
    await call.context.abort(code, message, trailing_metadata=metadata)


def _known(error: BaseException) -> PodiumError | None:
    """The Podium exception that it is, or that a task group wraps."""
    if isinstance(error, BaseExceptionGroup):
        inner = [_known(part) for part in error.exceptions]
        known = [part for part in inner if part is not None]
        return known[0] if known and len(known) == len(inner) else None
    if isinstance(error, InternalError):
        return error if error.metadata.get("error_id") else None
    return error if isinstance(error, PodiumError) else None


def _masked(call: ServerCall, error: BaseException) -> InternalError:
    call.error_id = uuid.uuid4().hex[:12]
    logger.error(
        "uncaught exception",
        exc_info=error,
        extra={"error_id": call.error_id, "method": call.path},
    )
    # Raised on purpose, its words are meant for the client.
    text = f"{error.message}; " if isinstance(error, InternalError) else "internal error; "
    return InternalError(
        f"{text}the server's log has it under error id {call.error_id}",
        reason=error.reason if isinstance(error, InternalError) else "",
        metadata={
            **(error.metadata if isinstance(error, InternalError) else {}),
            "error_id": call.error_id,
        },
    )


def _draining() -> UnavailableError:
    return UnavailableError("the server is stopping; resume elsewhere", reason="DRAINING")


def _unimplemented(call: ServerCall) -> UnimplementedError:
    return UnimplementedError(f"this server does not implement {call.path.lstrip('/')}")


def _was_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
