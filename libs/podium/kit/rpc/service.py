"""The life of a service process, from its settings to exit status 0."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from prometheus_client import REGISTRY, CollectorRegistry

from podium.core.errors import InvalidArgumentError, PodiumError
from podium.core.proxies import keep_direct
from podium.kit.rpc.server import Server
from podium.kit.rpc.settings import ServerSettings
from podium.kit.telemetry import setup_logging, setup_tracing

logger = logging.getLogger(__name__)

Build = Callable[[Server], AbstractAsyncContextManager[None]]

_AFTER_DRAIN_SECONDS = 10.0


def run_service(
    name: str,
    settings: ServerSettings,
    build: Build,
    *,
    socket: Path | None = None,
    registry: CollectorRegistry = REGISTRY,
) -> None:
    """Runs a service until SIGTERM or SIGINT, drains it, and exits the process.

    Health and metrics answer before `build` is entered, so that a probe sees
    a long start. A signal during the start ends it; a second signal during
    the drain cuts the running calls.

    Args:
        build: adds the servicers; what it holds is released after the drain.
        socket, registry: as for `Server`.

    Raises:
        SystemExit: always: 0 after a signal, 1 when the service could not
            start or stop in time, which the log explains, 2 when a variable
            of OpenTelemetry is wrong, which one line on stderr says.
    """
    keep_direct()
    setup_logging(name, settings.log_level, settings.log_format)
    flush = _tracing(name)
    try:
        server = functools.partial(Server, name, settings, socket=socket, registry=registry)
        asyncio.run(_supervise(name, server, build))
        code = 0
    except PodiumError as error:
        logger.error("%s cannot run: %s", name, error.message, extra={"reason": error.reason})
        code = 1
    except Exception:
        logger.exception("%s cannot run", name)
        code = 1
    finally:
        flush()
    sys.exit(code)


def _tracing(name: str) -> Callable[[], None]:
    """Sets tracing up; a wrong variable ends the process as a wrong setting does."""
    try:
        return setup_tracing(name)
    except InvalidArgumentError as error:
        for violation in error.violations:
            print(violation, file=sys.stderr)
        sys.exit(2)


async def _supervise(name: str, make: Callable[[], Server], build: Build) -> None:
    server = make()
    life = asyncio.create_task(_live(server, build), name=f"life-of-{name}")
    signals = 0

    def on_signal() -> None:
        nonlocal signals
        signals += 1
        if signals > 1:
            asyncio.create_task(server.stop(0))  # noqa: RUF006  # outlived by `life`
            return
        _bound_stop(server.settings.drain_seconds + _AFTER_DRAIN_SECONDS)
        if server.started:
            server.request_stop()
        else:
            life.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        await life
    except asyncio.CancelledError:
        if not signals:
            raise


async def _live(server: Server, build: Build) -> None:
    try:
        await server.start_probes()
        async with build(server):
            await server.start()
            await server.wait()
            logger.info("draining", extra={"seconds": server.settings.drain_seconds})
            await server.stop()
        logger.info("stopped")
    finally:
        await server.stop(0)


def _bound_stop(seconds: float) -> None:
    """Ends the process when something, such as a thread that hangs, will not."""

    def give_up() -> None:
        logger.error("did not stop in %s seconds; ending all the same", seconds)
        os._exit(1)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
