"""`podium.environment.v1.EnvironmentService` over an `Environment` class."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import grpc

from podium.core.errors import (
    FailedPreconditionError,
    NotFoundError,
)
from podium.core.page_tokens import page_of
from podium.environment.v1 import environment_service_pb2 as pb
from podium.environment.v1 import environment_service_pb2_grpc as pb_grpc
from podium.environments.base import Environment
from podium.environments.serving.convert import scenario_to_pb, unstruct
from podium.environments.serving.resumable_session import Lost, ResumableSession
from podium.environments.serving.sessions import SessionLimits, Sessions
from podium.environments.types import Scenario
from podium.types.v1 import trajectory_pb2 as types_pb

_Context = grpc.aio.ServicerContext[Any, Any]
DEFAULT_PAGE = 1000


def scenario_page(
    kind: type[Environment], config: Mapping[str, Any], split: str, size: int, token: str
) -> tuple[list[types_pb.Scenario], str]:
    """A page of an environment's scenarios, and the next page's token.

    Raises:
        NotFoundError: an unknown split.
        InvalidArgumentError: wrong options, a wrong file of scenarios, or a token that is not ours.
        FailedPreconditionError: a file of scenarios that cannot be read here.
    """
    if split not in kind.splits:
        raise NotFoundError(
            f"environment {kind.name!r} has no split {split!r}; it has {', '.join(kind.splits)}",
            reason="SPLIT_NOT_FOUND",
            metadata={"split": split},
        )
    everything: Sequence[Scenario] = kind(config).listed(split)
    arguments = [kind.name, split, dict(config)]
    page, following = page_of(everything, size or DEFAULT_PAGE, token, arguments)
    return [scenario_to_pb(scenario, split) for scenario in page], following


class EnvironmentServicer(pb_grpc.EnvironmentServiceServicer):
    """See the contract for what each method does and how it fails."""

    def __init__(self, kind: type[Environment], limits: SessionLimits = SessionLimits()) -> None:  # noqa: B008
        """Serves one environment."""
        self._kind = kind
        self._sessions = Sessions(kind, limits)

    async def close(self) -> None:
        """Closes the sessions that are left."""
        await self._sessions.close()

    async def Describe(self, request: pb.DescribeRequest, context: _Context) -> pb.DescribeResponse:
        return pb.DescribeResponse(
            name=self._kind.name,
            description=self._kind.description,
            splits=self._kind.splits,
            max_sessions=self._sessions.limits.max_sessions,
        )

    async def ListScenarios(
        self, request: pb.ListScenariosRequest, context: _Context
    ) -> pb.ListScenariosResponse:
        page, token = await asyncio.to_thread(
            scenario_page,
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
        requests = aiter(request_iterator)
        first = await anext(requests, None)
        if first is None:
            return
        if not first.HasField("open"):
            raise FailedPreconditionError(
                f"{first.WhichOneof('request')} before open", reason="NOT_OPEN"
            )
        held, resumed = await self._sessions.open(first.open)
        lost = held.attach()
        try:
            opened = pb.OpenResponse(
                resumed=resumed,
                last_sequence=held.sequence,
                idle_seconds=held.idle_seconds,
                resume_seconds=held.resume_seconds,
            )
            yield self._with_credits(pb.SessionResponse(open=opened))
            async with aclosing(_answers(requests, held, lost)) as answers:
                async for answer in answers:
                    yield self._with_credits(answer)
        finally:
            held.detach(lost)

    def _with_credits(self, response: pb.SessionResponse) -> pb.SessionResponse:
        # What is remembered must not change: the credits are those of this moment.
        fresh = pb.SessionResponse()
        fresh.CopyFrom(response)
        if self._sessions.credits is not None:
            fresh.credits = self._sessions.credits
        return fresh


async def _answers(
    requests: AsyncIterator[pb.SessionRequest], held: ResumableSession, lost: Lost
) -> AsyncGenerator[pb.SessionResponse]:
    """Reads on while a request runs: score and close may end it, and the stream may break."""
    acting: asyncio.Task[pb.SessionResponse] | None = None
    reading = asyncio.ensure_future(_next(requests))
    news = asyncio.ensure_future(held.news.wait())
    read_all = told_queued = False
    try:
        while acting or not read_all:
            if news.done():
                held.news.clear()
                news = asyncio.ensure_future(held.news.wait())
            if acting and not acting.done() and held.queued != told_queued:
                told_queued = held.queued
                yield pb.SessionResponse(
                    queued=pb.QueuedResponse(sequence=held.sequence, queued=told_queued)
                )
            watched: set[asyncio.Future[Any]] = {lost, news}
            if acting:
                watched.add(acting)
            await asyncio.wait(
                watched if read_all else watched | {reading}, return_when=asyncio.FIRST_COMPLETED
            )
            if lost.done():
                raise lost.result()
            if acting and acting.done():
                answer = acting.result()
                acting, told_queued = None, False
                yield answer
                if answer.HasField("close"):
                    return
            elif reading.done() and not read_all:
                request = reading.result()
                if request is None:
                    read_all = True
                    continue
                if request.HasField("open"):
                    raise FailedPreconditionError("open came before", reason="ALREADY_OPEN")
                acting = held.submit(request)
                reading = asyncio.ensure_future(_next(requests))
    finally:
        reading.cancel()
        news.cancel()
        await asyncio.wait([reading, news])


async def _next(requests: AsyncIterator[pb.SessionRequest]) -> pb.SessionRequest | None:
    return await anext(requests, None)
