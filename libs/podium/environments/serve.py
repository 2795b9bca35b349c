"""`podium.environment.v1.EnvironmentService` over an `Environment` class."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import grpc

from podium.core.errors import (
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PodiumError,
    ResourceExhaustedError,
    Violation,
)
from podium.environment.v1 import environment_service_pb2 as pb
from podium.environment.v1 import environment_service_pb2_grpc as pb_grpc
from podium.environments.base import Environment
from podium.environments.convert import scenario_to_pb, unstruct
from podium.environments.session import LocalSession
from podium.environments.types import Scenario
from podium.types.v1 import trajectory_pb2 as types_pb

logger = logging.getLogger(__name__)

_Context = grpc.aio.ServicerContext
DEFAULT_PAGE = 1000


def scenario_page(
    kind: type[Environment], config: Mapping[str, Any], split: str, size: int, token: str
) -> tuple[list[types_pb.Scenario], str]:
    """A page of an environment's scenarios, and the next page's token.

    Raises:
        NotFoundError: an unknown split.
        InvalidArgumentError: wrong options, or a token that is not ours.
    """
    if split not in kind.splits:
        raise NotFoundError(
            f"environment {kind.name!r} has no split {split!r}; it has {', '.join(kind.splits)}",
            reason="SPLIT_NOT_FOUND",
            metadata={"split": split},
        )
    everything: Sequence[Scenario] = kind(config).scenarios(split)
    start = _position(token, len(everything))
    end = start + (size or DEFAULT_PAGE)
    page = [scenario_to_pb(scenario, split) for scenario in everything[start:end]]
    return page, f"at-{end}" if end < len(everything) else ""


def _position(token: str, length: int) -> int:
    if not token:
        return 0
    match = re.fullmatch(r"at-([0-9]{1,18})", token)
    if match and int(match[1]) < length:
        return int(match[1])
    raise InvalidArgumentError(
        violations=[Violation("page_token", f"got {token!r}; not a token of this listing")]
    )


class EnvironmentServicer(pb_grpc.EnvironmentServiceServicer):
    """See the contract for what each method does and how it fails."""

    def __init__(self, kind: type[Environment], max_sessions: int = 0) -> None:
        """`max_sessions` 0 means no limit."""
        self._kind = kind
        self._max_sessions = max_sessions
        self._sessions = 0

    async def Describe(self, request: pb.DescribeRequest, context: _Context) -> pb.DescribeResponse:
        return pb.DescribeResponse(
            name=self._kind.name,
            description=self._kind.description,
            splits=self._kind.splits,
            max_sessions=self._max_sessions,
        )

    async def ListScenarios(
        self, request: pb.ListScenariosRequest, context: _Context
    ) -> pb.ListScenariosResponse:
        page, token = scenario_page(
            self._kind,
            unstruct(request.config),
            request.split,
            request.page_size,
            request.page_token,
        )
        return pb.ListScenariosResponse(scenarios=page, next_page_token=token)

    async def Session(
        self, request_iterator: AsyncIterator[pb.SessionRequest], context: _Context
    ) -> AsyncIterator[pb.SessionResponse]:
        if self._max_sessions and self._sessions >= self._max_sessions:
            raise ResourceExhaustedError(
                f"all {self._max_sessions} sessions are taken", reason="NO_SESSION"
            )
        self._sessions += 1
        session: LocalSession | None = None
        try:
            async for request in request_iterator:
                match request.WhichOneof("request"):
                    case "reset":
                        if session is not None:
                            raise FailedPreconditionError(
                                "reset was called before", reason="ALREADY_RESET"
                            )
                        session = LocalSession(self._kind(unstruct(request.reset.config)))
                        with _own_code():
                            observation = await session.reset(
                                request.reset.scenario, request.reset.seed
                            )
                        yield pb.SessionResponse(reset=pb.ResetResponse(observation=observation))
                    case "step":
                        if session is None:
                            raise FailedPreconditionError(
                                "step before reset", reason="NO_RUNNING_EPISODE"
                            )
                        with _own_code():
                            response = await session.step(request.step.action)
                        yield pb.SessionResponse(step=response)
                    case "close":
                        yield pb.SessionResponse(close=pb.CloseResponse())
                        return
                    case _:
                        raise InvalidArgumentError(
                            violations=[Violation("request", "set reset, step or close")]
                        )
        finally:
            self._sessions -= 1
            if session is not None:
                await session.close()


class _own_code:  # noqa: N801 - reads as a function
    """What the environment raised, told to the caller: it is the job owner's own code."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, PodiumError):
            # With an id of its own, so that the server does not mask it.
            error_id = uuid.uuid4().hex[:12]
            logger.warning("the environment raised", exc_info=error, extra={"error_id": error_id})
            raise InternalError(
                f"{type(error).__name__}: {error}",
                reason="ENVIRONMENT_RAISED",
                metadata={"type": type(error).__name__, "error_id": error_id},
            ) from error
