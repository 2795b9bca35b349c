"""A gRPC server as every Podium service runs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client import REGISTRY, CollectorRegistry

from podium.core.errors import UnavailableError
from podium.kit.rpc.auth import Authenticator, BearerTokens, auth_layer
from podium.kit.rpc.call import LayeredInterceptor
from podium.kit.rpc.drain import Drain
from podium.kit.rpc.incoming import FirstMessages
from podium.kit.rpc.limits import greatest_request_bytes
from podium.kit.rpc.masking import check_request, error_layer
from podium.kit.rpc.observe import telemetry_layer
from podium.kit.rpc.settings import ServerSettings
from podium.kit.rpc.slots import CallSlots
from podium.kit.rpc.stopping import Stopping
from podium.kit.rpc.tls import Tls
from podium.kit.telemetry import MetricsServer, start_metrics_server

logger = logging.getLogger(__name__)

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_PING_INTERVAL_MS = 10_000
_PENDING_CALLS = 10_000
# A service's name; anybody may call.
_HEALTH_REQUEST_BYTES = 4096


class Server:
    """gRPC, health and metrics on three ports; the last two alone where no servicer is added.

    The health service name "" says that the process is up and has not begun
    to stop (a liveness probe); the name of each added service says whether it
    takes calls (a readiness probe).
    """

    def __init__(
        self,
        name: str,
        settings: ServerSettings,
        *,
        authenticator: Authenticator | None = None,
        public_methods: frozenset[str] = frozenset(),
        socket: Path | None = None,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        """Nothing is bound yet. Health and metrics are in plain text, for probes and scrapers.

        Args:
            authenticator: decides about every method that is not public; None
                for the settings' tokens, or without those for everybody.
            public_methods: full paths, `/podium.x.v1.XService/Method`.
            socket: a Unix socket to take calls at in place of all three ports, in plain text and
                from whoever may open it: for a service's own processes.
            registry: the metrics to show.
        """
        self.name = name
        self.settings = settings
        self.port = settings.port
        self.health_port = settings.health_port
        self.metrics_port = settings.metrics_port
        self.draining = asyncio.Event()
        """Set when the drain begins; long loops may end by it."""
        self._socket = socket
        self._registry = registry
        if authenticator is None and settings.auth_tokens_file is not None and socket is None:
            authenticator = BearerTokens.from_file(settings.auth_tokens_file)
        self._tls = settings.tls() if socket is None else None
        self._auth = auth_layer(authenticator, public_methods)
        self._drain = Drain()
        self._added: list[tuple[Callable[[Any, Any], None], object, str]] = []
        self._health = health.aio.HealthServicer()
        self._health_server: Stopping | None = None
        self._server: Stopping | None = None
        self._metrics: MetricsServer | None = None
        self._started = False
        self._serving = True
        self._telling: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    def add(self, add_to_server: Callable[[Any, Any], None], servicer: object, name: str) -> None:
        """Adds a servicer, by its generated `add_…_to_server` and full service name."""
        self._added.append((add_to_server, servicer, name))

    async def start_probes(self) -> None:
        """Binds health (not serving yet) and metrics; `start` does it when it was not done.

        Raises:
            UnavailableError: a port cannot be bound.
        """
        if self._health_server is not None or self._socket is not None:
            return
        await self._health.set("", _NOT_SERVING)
        server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", _HEALTH_REQUEST_BYTES),
            ]
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        self.health_port = self._bind(server, "health", self.settings.health_port)
        self._metrics = start_metrics_server(
            self.settings.host, self.settings.metrics_port, self._registry
        )
        self.metrics_port = self._metrics.port
        await server.start()
        self._health_server = Stopping(server)

    async def start(self) -> None:
        """Binds and serves; the ports are then the real ones.

        Raises:
            UnavailableError: a port cannot be bound.
        """
        await self.start_probes()
        if self._added:
            await self._start_calls(self.settings)
        self._started = True
        await self._health.set("", _SERVING)
        await self._set_services()
        logger.info(
            "serving",
            extra={
                "address": str(self._socket or f"{self.settings.host}:{self.port}"),
                "health_port": self.health_port,
                "metrics_port": self.metrics_port,
            },
        )

    async def _start_calls(self, settings: ServerSettings) -> None:
        slots = CallSlots(settings.max_concurrent_rpcs, settings.max_concurrent_watches)
        interceptor = LayeredInterceptor(
            (telemetry_layer, error_layer, self._drain.layer, self._auth),
            (slots.layer,),
            check_request,
            FirstMessages(settings.max_concurrent_rpcs, settings.first_message_seconds),
            settings.max_message_bytes,
        )
        # gRPC's own bound on calls at once counts those that will be refused, and all alike.
        server = grpc.aio.server(
            interceptors=[interceptor],
            options=_options(settings, greatest_request_bytes(name for *_, name in self._added)),
        )
        for add_to_server, servicer, _ in self._added:
            add_to_server(servicer, server)
        if settings.reflection:
            names = [name for _, _, name in self._added]
            reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], server)
        if self._socket is None:
            self.port = self._bind(server, "gRPC", settings.port, self._tls)
        else:
            server.add_insecure_port(f"unix:{self._socket}")
        await server.start()
        self._server = Stopping(server)

    @property
    def started(self) -> bool:
        """Whether it takes calls, or did."""
        return self._started

    def set_serving(self, serving: bool) -> asyncio.Task[None]:
        """Says whether the added services take calls; before `start` it holds from then on.

        Returns:
            A task that ends when every watcher of the health service was told.
        """
        self._serving = serving
        self._telling = asyncio.create_task(self._set_services())
        return self._telling

    async def wait(self) -> None:
        """Returns when a stop was requested."""
        await self._stop.wait()

    def request_stop(self) -> None:
        """Ends `wait`; run_service calls it on SIGTERM and SIGINT."""
        self._stop.set()

    async def stop(self, grace: float | None = None) -> None:
        """Takes no new calls, lets running ones end, then ends the others.

        Args:
            grace: seconds; None for the settings' drain_seconds.
        """
        self._stop.set()
        self.draining.set()
        await self._health.enter_graceful_shutdown()
        self._drain.begin()
        if self._server is not None:
            await self._server.stop(self.settings.drain_seconds if grace is None else grace)
        if self._health_server is not None:
            await self._health_server.stop(0)
        metrics, self._metrics = self._metrics, None
        if metrics is not None:
            await asyncio.to_thread(metrics.stop)

    async def _set_services(self) -> None:
        if not self._started:
            return
        for _, _, name in self._added:
            await self._health.set(name, _SERVING if self._serving else _NOT_SERVING)

    def _bind(self, server: grpc.aio.Server, what: str, port: int, tls: Tls | None = None) -> int:
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        try:
            if tls is not None:
                return server.add_secure_port(f"{host}:{port}", tls.server_credentials())
            return server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise UnavailableError(
                f"{what} cannot listen on {host}:{port}: the port is taken, or the host is not"
                " this machine's",
                reason="PORT_UNAVAILABLE",
                metadata={"address": f"{host}:{port}"},
            ) from error


def _options(settings: ServerSettings, request_bytes: int) -> list[tuple[str, int]]:
    return [
        # With 1, gRPC's default, two processes take the same port and share its calls.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", min(request_bytes, settings.max_message_bytes)),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        # Calls that came and were not looked at yet. gRPC's default is 1000; of more it cancels
        # some at random, in a burst of anybody's those of users too.
        ("grpc.server.max_pending_requests", _PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _PENDING_CALLS),
        ("grpc.max_connection_age_ms", int(settings.max_connection_age_seconds * 1000)),
        ("grpc.max_connection_age_grace_ms", int(settings.max_connection_age_grace_seconds * 1000)),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        # Below the clients' interval; else they are sent away with too_many_pings.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _PING_INTERVAL_MS),
        ("grpc.http2.min_ping_interval_without_data_ms", _PING_INTERVAL_MS),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
