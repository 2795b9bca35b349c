"""The HTTP port: uvicorn, ended by the service and not by signals of its own."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import uvicorn
from podium.core.errors import UnavailableError
from podium.core.tasks import cancel_and_wait
from podium.kit.rpc.watched_files import WatchedFiles

from podium_console.settings import Settings

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 30.0


@asynccontextmanager
async def serving(app: Any, settings: Settings) -> AsyncIterator[int]:
    """Serves while the block runs, and gives the port; at its end running requests may end.

    Raises:
        UnavailableError: the port cannot be bound.
    """
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=max(1, int(settings.drain_seconds)),
        limit_concurrency=settings.max_concurrent_rpcs,
        **_tls(settings),
    )
    config.load()
    server = _Server(config)
    task = asyncio.create_task(_serve(server), name="http")
    while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn has no event
        await asyncio.sleep(0.02)
    if task.done():
        raise UnavailableError(
            f"HTTP cannot listen on {settings.host}:{settings.port}: the port is taken, or the "
            "host is not this machine's",
            reason="PORT_UNAVAILABLE",
        )
    renewing = asyncio.create_task(_renew(settings, config.ssl)) if config.ssl else None
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task
        if renewing is not None:
            await cancel_and_wait(renewing)


def _tls(settings: Settings) -> dict[str, Any]:
    if settings.tls_certificate_file is None:
        return {}
    return {
        "ssl_certfile": str(settings.tls_certificate_file),
        "ssl_keyfile": str(settings.tls_key_file),
        "ssl_ca_certs": str(settings.tls_authorities_file),
        "ssl_cert_reqs": ssl.CERT_REQUIRED if settings.client_certificates else ssl.CERT_NONE,
    }


async def _serve(server: uvicorn.Server) -> None:
    try:
        await server.serve()
    except SystemExit:
        # What uvicorn does about a port that is taken; whoever waits says it.
        logger.debug("uvicorn ended")


async def _renew(settings: Settings, context: ssl.SSLContext) -> None:
    """Handshakes that come after the files were renewed show the new certificate."""
    certificate, key = settings.tls_certificate_file, settings.tls_key_file
    assert certificate is not None
    assert key is not None
    seen: list[None] = []

    def load() -> None:
        if seen:
            try:
                context.load_cert_chain(certificate, key)
            except (ssl.SSLError, OSError):
                # One file is renewed and the other not yet: the next look finds both.
                logger.warning("the certificate cannot be read; the one before stays in force")
        seen.append(None)

    files: WatchedFiles[None] = WatchedFiles([certificate, key], load)
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        files.current()


class _Server(uvicorn.Server):
    """Leaves signals to the service."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Captures none."""
        return nullcontext()
