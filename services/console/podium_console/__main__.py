"""`python -m podium_console`: serves the pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podium.kit.rpc import Server, load_settings, run_service

from podium_console.adapters.http_server import serving
from podium_console.adapters.installation import Installation
from podium_console.settings import Settings
from podium_console.web.app import build


def main() -> None:
    """Runs until SIGTERM or SIGINT."""
    settings = load_settings(Settings)

    @asynccontextmanager
    async def served(server: Server) -> AsyncIterator[None]:
        installation = Installation(settings)
        async with _closing(installation):
            app = build(settings, installation, server.draining)
            async with serving(app, settings) as port:
                server.port = port
                yield

    run_service("console", settings, served)


@asynccontextmanager
async def _closing(installation: Installation) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await installation.close()


if __name__ == "__main__":
    main()
