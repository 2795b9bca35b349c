"""The asynchronous client."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from podium.rpc import connect
from podium.sdk.addresses import Addresses, locate
from podium.sdk.backend import RemoteBackend
from podium.sdk.checkpoints import Checkpoints
from podium.sdk.environments import Environments
from podium.sdk.jobs import Jobs
from podium.sdk.judge import Judge
from podium.sdk.models import Models
from podium.sdk.policies import Policies
from podium.sdk.sessions import Sessions

if TYPE_CHECKING:
    import grpc


class AsyncClient:
    """Talks to a Podium installation.

    Channels are opened when they are first used, so a client that only
    manages jobs needs only the controller.
    """

    def __init__(self, addresses: Addresses | None = None, *, timeout: float = 30.0) -> None:
        """`timeout` is the deadline of one unary call, in seconds."""
        self.addresses = addresses or locate()
        self._timeout = timeout
        self._channels: dict[str, grpc.aio.Channel] = {}
        self.jobs = Jobs(lambda: self._channel(self.addresses.controller))
        self.policies = Policies(lambda: self._channel(self.addresses.inference))
        self.checkpoints = Checkpoints(lambda: self._channel(self.addresses.registry))
        self.environments = Environments(lambda: self._channel(self.addresses.rollout))
        self.sessions = Sessions(lambda: self._channel(self.addresses.controller))
        self.judge = Judge(lambda: self._channel(self.addresses.judge))
        self.backend = RemoteBackend(self)
        """Where models of `podium.training` train."""
        self.models = Models(self.backend)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the channels. Idempotent."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = connect(
                address, default_timeout=self._timeout, token=self.addresses.token
            )
        return self._channels[address]
