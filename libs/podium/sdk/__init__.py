"""The client: jobs, policies, checkpoints and environments of a Podium installation.

    from podium.sdk import Client

    with Client() as podium:
        job = podium.jobs.create(spec)
        for update in podium.jobs.watch(job.id):
            print(update.event.message)

Which installation it talks to is `podium.sdk.connection.addresses.locate`'s to say;
`Client(context="work")` is one that `podium login` saved.

`AsyncClient` is the same with `await` and `async for`. Both raise
`podium.core.errors`. Importing this module does not load gRPC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podium.sdk.connection.addresses import Addresses

if TYPE_CHECKING:
    from podium.sdk.client import AsyncClient
    from podium.sdk.sync import Client

__all__ = ["Addresses", "AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    if name == "AsyncClient":
        from podium.sdk.client import AsyncClient

        return AsyncClient
    if name == "Client":
        from podium.sdk.sync import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
