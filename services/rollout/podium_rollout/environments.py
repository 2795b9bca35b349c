"""Environments, built in or remote, behind one interface."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import grpc
from podium.core.errors import InternalError, UnavailableError
from podium.environment.v1 import environment_service_pb2 as pb
from podium.environment.v1 import environment_service_pb2_grpc as pb_grpc
from podium.environments.catalog import load
from podium.environments.convert import unstruct
from podium.environments.serve import scenario_page
from podium.environments.session import LocalSession
from podium.rpc import connect, rpc_errors
from podium.types.v1 import spec_pb2, trajectory_pb2

logger = logging.getLogger(__name__)

_CLOSE_SECONDS = 10.0


class EnvironmentRaisedError(Exception):
    """A remote environment's own code raised."""

    def __init__(self, kind: str, text: str, error_id: str) -> None:
        """`kind` is the exception's class there, `error_id` is in that server's log."""
        super().__init__(text)
        self.kind = kind
        self.error_id = error_id


class Session(Protocol):
    """One episode of an environment."""

    async def reset(self, scenario: trajectory_pb2.Scenario, seed: int) -> pb.Observation:
        """Begins it."""
        ...

    async def step(self, action: trajectory_pb2.Message) -> pb.StepResponse:
        """Acts."""
        ...


class Environments:
    """Opens sessions of any environment that a job names; keeps one channel an address."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def close(self) -> None:
        """Closes the channels."""
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))

    async def scenarios(
        self, spec: spec_pb2.EnvironmentSpec, split: str, size: int, token: str
    ) -> tuple[list[trajectory_pb2.Scenario], str]:
        """A page of a split, and the next page's token.

        Raises:
            NotFoundError: an unknown environment or split.
            InvalidArgumentError: options that the environment refuses.
        """
        if not spec.address:
            return scenario_page(load(spec.name), unstruct(spec.config), split, size, token)
        with rpc_errors(f"environment {spec.name!r}"):
            response = await self._stub(spec.address).ListScenarios(
                pb.ListScenariosRequest(
                    split=split, page_size=size, page_token=token, config=spec.config
                )
            )
        return list(response.scenarios), response.next_page_token

    @asynccontextmanager
    async def session(self, spec: spec_pb2.EnvironmentSpec) -> AsyncIterator[Session]:
        """An episode; closed when the block ends."""
        if not spec.address:
            local = LocalSession(load(spec.name)(unstruct(spec.config)))
            try:
                yield local
            finally:
                await _close(local)
            return
        call = self._stub(spec.address).Session()
        try:
            yield RemoteSession(call, spec)
        finally:
            call.cancel()

    def _stub(self, address: str) -> pb_grpc.EnvironmentServiceAsyncStub:
        if address not in self._channels:
            self._channels[address] = connect(address)
        return pb_grpc.EnvironmentServiceStub(self._channels[address])


async def _close(session: LocalSession) -> None:
    """Closes it for good or ill: by now the episode has its outcome."""
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await session.close()
    except Exception:
        logger.warning("an environment could not be closed", exc_info=True)


class RemoteSession:
    """An episode over `podium.environment.v1`."""

    def __init__(
        self,
        call: grpc.aio.StreamStreamCall[pb.SessionRequest, pb.SessionResponse],
        spec: spec_pb2.EnvironmentSpec,
    ) -> None:
        """`call` is a fresh Session stream."""
        self._call = call
        self._spec = spec

    async def reset(self, scenario: trajectory_pb2.Scenario, seed: int) -> pb.Observation:
        """Begins the episode.

        Raises:
            EnvironmentRaisedError: the environment's own code raised.
            PodiumError: what else the call failed with.
        """
        request = pb.ResetRequest(scenario=scenario, seed=seed, config=self._spec.config)
        return (await self._ask(pb.SessionRequest(reset=request))).reset.observation

    async def step(self, action: trajectory_pb2.Message) -> pb.StepResponse:
        """Acts; raises as `reset` does."""
        request = pb.SessionRequest(step=pb.StepRequest(action=action))
        return (await self._ask(request)).step

    async def _ask(self, request: pb.SessionRequest) -> pb.SessionResponse:
        peer = f"environment {self._spec.name!r}"
        try:
            with rpc_errors(peer):
                # A write to a call that has ended says nothing; the read says how it ended.
                with suppress(asyncio.InvalidStateError):
                    await self._call.write(request)
                response = await self._call.read()
        except InternalError as error:
            if error.reason == "ENVIRONMENT_RAISED":
                kind, _, text = error.message.partition(": ")
                error_id = error.metadata.get("error_id", "")
                raise EnvironmentRaisedError(kind, text, error_id) from error
            raise
        if not isinstance(response, pb.SessionResponse):
            raise UnavailableError(f"{peer} ended the session early", reason="SESSION_ENDED")
        return response
