"""The six services of one machine, started and stopped together."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import podium
from podium.core.errors import FailedPreconditionError, NotFoundError, UnavailableError
from podium.local.launcher import logs, variables
from podium.local.launcher.config import LauncherConfig
from podium.local.launcher.events import Event, EventKind
from podium.local.launcher.guardian import Guardian
from podium.local.launcher.layout import Ports, choose_ports, is_free, service_names
from podium.local.launcher.supervisor import ServicePlan, Supervisor
from podium.local.launcher.upfile import Claim, ServiceEntry, UpFile

_log = logging.getLogger(__name__)


class Launcher:
    """Runs a local stack.

        async with Launcher(LauncherConfig(data_dir=Path("data"))) as stack:
            connect(stack.address("controller"))

    Entering starts the services and returns when all of them serve; leaving
    stops them. Enter it on the main thread: the kernel ends the services when
    the thread that started them ends.
    """

    def __init__(
        self, config: LauncherConfig, on_event: Callable[[Event], None] | None = None
    ) -> None:
        """`on_event` is called on the loop's thread for everything that happens."""
        self.config = config
        self.data_dir = config.data_dir.resolve()
        self._on_event = on_event or _log_event
        self._services = service_names(config.services)
        self._supervisors: dict[str, Supervisor] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ports: dict[str, Ports] = {}
        self._claim: Claim | None = None
        self._guardian: Guardian | None = None

    async def __aenter__(self) -> Launcher:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def services(self) -> tuple[str, ...]:
        """The services that this stack has."""
        return self._services

    def address(self, service: str) -> str:
        """`host:port` of a service's gRPC server."""
        return variables.address(self._port(service).grpc)

    def health_address(self, service: str) -> str:
        """`host:port` of a service's health server."""
        return variables.address(self._port(service).health)

    def metrics_address(self, service: str) -> str:
        """`host:port` of a service's Prometheus endpoint."""
        return variables.address(self._port(service).metrics)

    @property
    def openai_base_url(self) -> str:
        """Base URL of the OpenAI API; empty in a stack without inference."""
        return variables.openai_base_url(self._ports) if "inference" in self._services else ""

    @property
    def console_url(self) -> str:
        """Where a browser finds the console; empty in a stack without it."""
        return f"http://{self.address('console')}/" if "console" in self._services else ""

    def log(self, service: str) -> Path:
        """The file that a service writes to."""
        return logs.log_path(self.data_dir, service)

    def pid(self, service: str) -> int:
        """A service's process id now; 0 while it is being restarted."""
        return self._supervisor(service).pid

    def restarts(self, service: str) -> int:
        """How often a service was started again."""
        return self._supervisor(service).restarts

    def is_ready(self, service: str) -> bool:
        """Whether a service serves, as far as the launcher knows."""
        return self._supervisor(service).ready.is_set()

    async def start(self) -> None:
        """Starts the services and waits until all of them serve.

        Raises:
            AlreadyExistsError: another launcher runs in this data directory.
            FailedPreconditionError: a port is taken.
            UnavailableError: a service ended, or did not serve in time; the
                others are stopped again.
        """
        self._ports = choose_ports(self.config.port_base)
        self._claim = Claim(self.data_dir)
        try:
            self._check_ports()
            if self.config.auth:
                _write_token(variables.token_path(self.data_dir))
                _write_token(variables.api_key_path(self.data_dir))
            self._guardian = Guardian()
            for name in self._services:
                self._launch(name, self._guardian)
            self._write_up_file()
            await self._wait_ready()
        except BaseException:
            await self.stop()
            raise

    async def wait(self) -> str:
        """Waits until a service has ended for good and returns its name."""
        await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        return next(name for name, task in self._tasks.items() if task.done())

    async def wait_ready(self, service: str, within: float = 120.0) -> None:
        """Waits until a service serves, again after a crash.

        Raises:
            UnavailableError: it does not `within` that many seconds.
        """
        try:
            await asyncio.wait_for(self._supervisor(service).ready.wait(), within)
        except TimeoutError:
            raise UnavailableError(f"{service} does not serve after {within:.0f} s") from None

    async def stop(self) -> None:
        """Stops every service: the controller first, so that it lets go of the others.

        Idempotent. Whatever does not end in time is killed.
        """
        bound = self.config.stop_timeout_seconds
        if "controller" in self._supervisors:
            await self._supervisors["controller"].stop(bound)
        await asyncio.gather(
            *(s.stop(bound) for name, s in self._supervisors.items() if name != "controller")
        )
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._release()

    def kill(self) -> None:
        """Kills every service at once; `stop` must still be awaited."""
        for supervisor in self._supervisors.values():
            supervisor.kill()

    def _release(self) -> None:
        if self._guardian is not None:
            self._guardian.close()
            self._guardian = None
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def _check_ports(self) -> None:
        taken = [
            f"{port} ({name})"
            for name in self._services
            for port in vars(self._ports[name]).values()
            if port and not is_free(port)
        ]
        if taken:
            raise FailedPreconditionError(
                f"ports in use by another program: {', '.join(taken)}; choose others with "
                "--port-base N, or --port-base 0 for any free ones",
                reason="PORT_IN_USE",
            )

    def _launch(self, name: str, guardian: Guardian) -> None:
        (self.data_dir / name).mkdir(parents=True, exist_ok=True)
        log = self.log(name)
        logs.rotate(log)
        plan = ServicePlan(
            name=name,
            module=f"podium_{name}",
            environment=variables.of_service(name, self.config, self._ports, self.data_dir),
            health_address=self.health_address(name),
            log=log,
        )
        supervisor = Supervisor(plan, self.config.restart, guardian, self._handle)
        self._supervisors[name] = supervisor
        self._tasks[name] = asyncio.create_task(supervisor.run(), name=f"supervise-{name}")

    async def _wait_ready(self) -> None:
        ready = asyncio.gather(*(s.ready.wait() for s in self._supervisors.values()))
        ended = asyncio.create_task(self.wait())
        try:
            await asyncio.wait(
                (ready, ended),
                timeout=self.config.ready_timeout_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if ended.done():
                name = ended.result()
                raise UnavailableError(
                    f"{name} could not be started; its log is {self.log(name)}",
                    reason="SERVICE_ENDED",
                )
            if not ready.done():
                late = [name for name, s in self._supervisors.items() if not s.ready.is_set()]
                raise UnavailableError(
                    f"not serving after {self.config.ready_timeout_seconds:.0f} s: "
                    f"{', '.join(late)}; logs are in {self.data_dir / 'logs'}",
                    reason="SERVICE_NOT_READY",
                )
        finally:
            ready.cancel()
            ended.cancel()
            await asyncio.gather(ready, ended, return_exceptions=True)

    def _handle(self, event: Event) -> None:
        if event.kind is EventKind.STARTED:
            self._write_up_file()
        self._on_event(event)

    def _write_up_file(self) -> None:
        UpFile(
            pid=os.getpid(),
            version=podium.__version__,
            model=self.config.model,
            openai_base_url=self.openai_base_url,
            token_file=str(variables.token_path(self.data_dir)) if self.config.auth else "",
            services={
                name: ServiceEntry(
                    address=self.address(name),
                    health_address=self.health_address(name),
                    metrics_address=self.metrics_address(name),
                    pid=supervisor.pid,
                    log=str(self.log(name)),
                )
                for name, supervisor in self._supervisors.items()
            },
        ).write(self.data_dir)

    def _port(self, service: str) -> Ports:
        return self._ports[self._known(service)]

    def _supervisor(self, service: str) -> Supervisor:
        return self._supervisors[self._known(service)]

    def _known(self, service: str) -> str:
        if service not in self._services:
            raise NotFoundError(f"{service!r} is not in this stack")
        return service


def _write_token(path: Path) -> None:
    """Makes a token on the first run; later runs keep it."""
    if not path.exists():
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(secrets.token_urlsafe(32) + "\n")


def _log_event(event: Event) -> None:
    level = logging.INFO
    if event.kind in (EventKind.CRASHED, EventKind.GAVE_UP, EventKind.KILLED):
        level = logging.WARNING
    _log.log(level, "%s %s: %s", event.service, event.kind, event.message)
    for line in event.log_tail:
        _log.log(level, "%s | %s", event.service, line)
