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
from podium.kit.rpc.tls import Tls
from podium.kit.rpc.watched_files import WatchedFiles

from podium_console.settings import Settings

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 30.0


@asynccontextmanager
async def serving(app: Any, settings: Settings) -> AsyncIterator[int]:
    """Serves while the block runs, and gives the port; at its end running requests may end.

    Raises:
        UnavailableError: the port cannot be bound.
        InvalidArgumentError: as `Tls.load`.
    """
    tls = settings.tls()
    files = tls.files if tls is not None else None
    first = files.current() if files is not None else None
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
    renewing = None
    if files is not None and first is not None and config.ssl is not None:
        renewing = asyncio.create_task(_renew(files, first, settings, config.ssl))
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


async def _renew(
    files: WatchedFiles[Tls], shown: Tls, settings: Settings, context: ssl.SSLContext
) -> None:
    """Handshakes that come after the files were renewed show the new certificate, and take callers
    of the new authorities alone."""
    newest = context

    # A context forgets no authority, and half a renewal would leave it without a certificate.
    def choose(connection: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
        connection.context = newest

    context.sni_callback = choose
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        now = files.current()
        if now is shown:
            continue
        try:
            newest = _renewed(settings, context)
        except (ssl.SSLError, OSError):
            logger.warning("the certificate is just being replaced; looking again")
        else:
            shown = now


def _renewed(settings: Settings, first: ssl.SSLContext) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(settings.tls_certificate_file, settings.tls_key_file)  # type: ignore[arg-type]
    made.load_verify_locations(settings.tls_authorities_file)
    made.verify_mode = first.verify_mode
    return made


class _Server(uvicorn.Server):
    """Leaves signals to the service."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Captures none."""
        return nullcontext()
