"""Keeps one service alive: starts it, watches it, starts it again."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from podium.local.launcher import health, logs
from podium.local.launcher.child import Child
from podium.local.launcher.config import RestartPolicy
from podium.local.launcher.events import Event, EventKind, describe_exit
from podium.local.launcher.guardian import Guardian
from podium.local.launcher.layout import READINESS

_TAIL_LINES = 20


@dataclass(frozen=True)
class ServicePlan:
    """How a service is started and where it is then."""

    name: str
    module: str
    environment: Mapping[str, str]
    health_address: str
    log: Path
    arguments: tuple[str, ...] = ()
    readiness: str | None = None
    """What to ask the health port for; None for what `READINESS` says of the name."""


class Supervisor:
    """One service's life under a launcher.

    `run` is its task: it returns when the service has ended for good, by
    `stop` or because the restart policy gave up, and `ready` is set while the
    service serves.
    """

    def __init__(
        self,
        plan: ServicePlan,
        policy: RestartPolicy,
        guardian: Guardian,
        report: Callable[[Event], None],
    ) -> None:
        self.plan = plan
        self.ready = asyncio.Event()
        self.restarts = 0
        self._policy = policy
        self._guardian = guardian
        self._report = report
        self._child: Child | None = None
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._recent: deque[float] = deque()
        self._unserved_in_a_row = 0

    @property
    def pid(self) -> int:
        """The service's process id; 0 while there is none."""
        return self._child.pid if self._child is not None else 0

    async def run(self) -> None:
        """Starts the service and keeps it up."""
        try:
            await self._keep_up()
        finally:
            self._ended.set()

    async def stop(self, within: float) -> None:
        """Ends the service: SIGTERM, then SIGKILL after `within` seconds."""
        self._stopping.set()
        if self._child is not None:
            self._child.terminate()
        if not await _set_within(self._ended, within):
            message = f"did not end within {within:.0f} s and is killed"
            self._report(Event(EventKind.KILLED, self.plan.name, message))
            self.kill()
            await self._ended.wait()

    def kill(self) -> None:
        """Ends the service at once."""
        self._stopping.set()
        if self._child is not None:
            self._child.kill_group()

    async def _keep_up(self) -> None:
        while not self._stopping.is_set():
            code, served = await self._run_once()
            if self._stopping.is_set():
                self._report(Event(EventKind.STOPPED, self.plan.name, describe_exit(code)))
                return
            self._report(
                Event(
                    EventKind.CRASHED,
                    self.plan.name,
                    f"ended unexpectedly: {describe_exit(code)}",
                    tuple(logs.tail(self.plan.log, _TAIL_LINES)),
                )
            )
            delay = self._next_delay(code, served)
            if delay is None:
                return
            self._report(Event(EventKind.RESTARTING, self.plan.name, f"restarts in {delay:.1f} s"))
            if await _set_within(self._stopping, delay):
                return
            self.restarts += 1

    async def _run_once(self) -> tuple[int, bool]:
        started = time.monotonic()
        plan = self.plan
        child = await Child.start(plan.module, plan.environment, plan.log, plan.arguments)
        self._child = child
        self._guardian.watch(child.pid)
        self._report(Event(EventKind.STARTED, self.plan.name, f"process {child.pid}"))
        if self._stopping.is_set():
            child.terminate()
        probe = asyncio.create_task(self._announce_ready(started))
        try:
            code = await child.wait()
        except asyncio.CancelledError:
            child.kill_group()
            raise
        finally:
            probe.cancel()
            served = self.ready.is_set()
            self.ready.clear()
            self._child = None
        # Whatever it had started (vLLM's engine process) goes with it.
        child.kill_group()
        self._guardian.forget(child.pid)
        return code, served

    async def _announce_ready(self, started: float) -> None:
        asked = self.plan.readiness
        if asked is None:
            asked = READINESS[self.plan.name]
        while not await health.wait_serving(self.plan.health_address, asked, within=60):
            continue
        self.ready.set()
        self._report(
            Event(
                EventKind.READY, self.plan.name, f"serves after {time.monotonic() - started:.1f} s"
            )
        )

    def _next_delay(self, code: int, served: bool) -> float | None:
        """Seconds before the next start; None to give up."""
        policy = self._policy
        self._unserved_in_a_row = 0 if served else self._unserved_in_a_row + 1
        if not policy.enabled:
            self._give_up("once, and restarts are off")
            return None
        if not served and code > 0 and self.restarts == 0:
            # It refused its configuration; the same start would end the same way.
            self._give_up("before it ever served; see its last log lines")
            return None
        now = time.monotonic()
        while self._recent and now - self._recent[0] > policy.window_seconds:
            self._recent.popleft()
        in_a_row = self._unserved_in_a_row > policy.max_restarts
        if len(self._recent) >= policy.max_restarts or in_a_row:
            self._give_up(
                f"after {policy.max_restarts} restarts"
                + (" without serving" if in_a_row else f" in {policy.window_seconds:.0f} s")
            )
            return None
        delay = policy.first_delay_seconds * 2.0 ** len(self._recent)
        self._recent.append(now)
        return delay

    def _give_up(self, why: str) -> None:
        self._report(
            Event(EventKind.GAVE_UP, self.plan.name, f"is not started again: it ended {why}")
        )


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
