"""An environment of one's own beside a local stack: served, watched, started again."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from podium.core.errors import FailedPreconditionError, UnavailableError
from podium.local.launcher import logs
from podium.local.launcher.config import RestartPolicy
from podium.local.launcher.events import Event
from podium.local.launcher.guardian import Guardian
from podium.local.launcher.layout import free_ports, is_free
from podium.local.launcher.supervisor import ServicePlan, Supervisor

_NAME = "task"
_SERVICE = "podium.environment.v1.EnvironmentService"
_READY_SECONDS = 60.0
_STOP_SECONDS = 10.0


class TaskServer:
    """Runs `podium env serve TASK` as long as it is entered.

    The port stays the same from run to run of a data directory, since a job keeps the address
    that it was submitted with.
    """

    def __init__(
        self, task: str, name: str, data_dir: Path, on_event: Callable[[Event], None]
    ) -> None:
        """`task` is what `podium env serve` takes, `name` the environment's."""
        self._task, self._name = task, name
        self._data_dir = data_dir.resolve()
        self._on_event = on_event
        self._guardian: Guardian | None = None
        self._supervisor: Supervisor | None = None
        self._running: asyncio.Task[None] | None = None
        self.port = 0

    @property
    def address(self) -> str:
        """`host:port` of the served environment."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """The file that the task prints to."""
        return logs.log_path(self._data_dir, _NAME)

    async def __aenter__(self) -> TaskServer:
        """Starts it and waits until it serves.

        Raises:
            FailedPreconditionError: the port of earlier runs is taken.
            UnavailableError: it ended, or does not serve in time.
        """
        self.port = _kept_port(self._data_dir / "tasks.json", self._name)
        health = free_ports(1)[0]
        self._guardian = Guardian()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        logs.rotate(self.log)
        plan = ServicePlan(
            name=_NAME,
            module="podium.cli",
            arguments=(
                *("env", "serve", self._task, "--port", str(self.port)),
                *("--health-port", str(health)),
            ),
            environment={**os.environ, "PYTHONUNBUFFERED": "1"},
            health_address=f"127.0.0.1:{health}",
            log=self.log,
            readiness=_SERVICE,
        )
        self._supervisor = Supervisor(plan, RestartPolicy(), self._guardian, self._on_event)
        self._running = asyncio.create_task(self._supervisor.run(), name="supervise-task")
        try:
            await self._wait_ready(self._supervisor, self._running)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop()

    async def _wait_ready(self, supervisor: Supervisor, running: asyncio.Task[None]) -> None:
        ready = asyncio.create_task(supervisor.ready.wait())
        try:
            await asyncio.wait(
                (ready, running), timeout=_READY_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if not ready.done():
                how = "ended" if running.done() else f"does not serve after {_READY_SECONDS:.0f} s"
                raise UnavailableError(
                    f"the task {self._name} {how}; its log is {self.log}", reason="SERVICE_ENDED"
                )
        finally:
            ready.cancel()
            await asyncio.gather(ready, return_exceptions=True)

    async def _stop(self) -> None:
        if self._supervisor is not None and self._running is not None:
            await self._supervisor.stop(_STOP_SECONDS)
            await asyncio.gather(self._running, return_exceptions=True)
        if self._guardian is not None:
            self._guardian.close()
            self._guardian = None


def _kept_port(file: Path, name: str) -> int:
    """The port that a task had in earlier runs, or a free one, which is noted."""
    ports: dict[str, int] = {}
    with suppress(OSError, ValueError, TypeError, AttributeError):
        ports = {
            str(key): int(value)
            for key, value in json.loads(file.read_text(encoding="utf-8")).items()
        }
    port = ports.get(name, 0)
    if not 0 < port < 2**16:
        port = free_ports(1)[0]
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{file.name}.{os.getpid()}")
        draft.write_text(json.dumps({**ports, name: port}, indent=1) + "\n", encoding="utf-8")
        draft.replace(file)
    elif not is_free(port):
        raise FailedPreconditionError(
            f"port {port}, which jobs of {name} reach it at, is in use: another 'podium train' of "
            f"it may run. To take another port for new jobs, remove {file}",
            reason="PORT_IN_USE",
        )
    return port
