"""Environments, built in or remote, behind one interface."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from podium.core.errors import UnavailableError
from podium.environment.v1 import environment_service_pb2 as pb
from podium.environment.v1 import environment_service_pb2_grpc as pb_grpc
from podium.environments.catalog import load
from podium.environments.serving.convert import unstruct
from podium.environments.serving.servicer import scenario_page
from podium.environments.serving.session import LocalSession
from podium.kit.rpc import connect, rpc_errors
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_rollout.adapters.credits import Credits
from podium_rollout.adapters.remote import RemoteSession
from podium_rollout.domain.episode import away
from podium_rollout.domain.ports import Session

logger = logging.getLogger(__name__)

_CLOSE_SECONDS = 10.0


class Environments:
    """Opens sessions of any environment that a job names; keeps one channel an address."""

    def __init__(self, resume_seconds: float = 30.0) -> None:
        """`resume_seconds` is how long a session is sought after its connection broke."""
        self._resume_seconds = resume_seconds
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._credits: defaultdict[str, Credits] = defaultdict(Credits)

    async def close(self) -> None:
        """Closes the channels."""
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))

    async def scenarios(
        self, spec: spec_pb2.EnvironmentSpec, split: str, size: int, token: str
    ) -> tuple[list[trajectory_pb2.Scenario], str]:
        """A page of a split, and the next page's token.

        Raises:
            NotFoundError: an unknown environment or split.
            InvalidArgumentError: options that the environment refuses, a wrong file of scenarios,
                or a token that is not of this listing.
            FailedPreconditionError: a package or the scenarios are missing where it runs.
            UnavailableError: it is away (ENVIRONMENT_UNAVAILABLE).
        """
        try:
            return await self._scenarios(spec, split, size, token)
        except UnavailableError as error:
            raise away(error) from error

    async def _scenarios(
        self, spec: spec_pb2.EnvironmentSpec, split: str, size: int, token: str
    ) -> tuple[list[trajectory_pb2.Scenario], str]:
        if not spec.address:
            # Scenarios may be in a large file.
            return await asyncio.to_thread(
                scenario_page, load(spec.name), unstruct(spec.config), split, size, token
            )
        with rpc_errors(f"environment {spec.name!r} at {spec.address}"):
            response = await self._stub(spec.address).ListScenarios(
                pb.ListScenariosRequest(
                    split=split, page_size=size, page_token=token, config=spec.config
                )
            )
        return list(response.scenarios), response.next_page_token

    @asynccontextmanager
    async def session(
        self, spec: spec_pb2.EnvironmentSpec, episode: spec_pb2.EpisodeSpec, label: str
    ) -> AsyncIterator[Session]:
        """An episode, after waiting for a slot; closed when the block ends.

        Raises:
            NotFoundError: an unknown environment.
            InvalidArgumentError: options that the environment refuses.
            ResourceExhaustedError: no slot came free in time.
            UnavailableError: the environment's server is away.
        """
        session: LocalSession | RemoteSession
        if not spec.address:
            session = LocalSession(load(spec.name)(unstruct(spec.config)))
        else:
            session = RemoteSession(
                self._stub(spec.address),
                spec,
                episode,
                label=label,
                credits_=self._credits[spec.address],
                resume_seconds=self._resume_seconds,
            )
        try:
            if isinstance(session, RemoteSession):
                await session.open()
            yield session
        finally:
            await _close(session)

    def _stub(self, address: str) -> pb_grpc.EnvironmentServiceAsyncStub:
        if address not in self._channels:
            self._channels[address] = connect(address)
        return pb_grpc.EnvironmentServiceStub(self._channels[address])


async def _close(session: LocalSession | RemoteSession) -> None:
    """Closes it for good or ill: by now the episode has its outcome."""
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await session.close()
    except Exception:
        logger.warning("an environment could not be closed", exc_info=True)
