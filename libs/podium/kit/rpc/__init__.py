"""How services speak to each other: servers, channels, errors, retries."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podium.kit.rpc.auth import Authenticator, BearerTokens
    from podium.kit.rpc.client import connect, connect_peer
    from podium.kit.rpc.errors import rpc_errors
    from podium.kit.rpc.retry import retry_unavailable
    from podium.kit.rpc.server import Server
    from podium.kit.rpc.service import run_service
    from podium.kit.rpc.settings import ServerSettings, load_settings

__all__ = [
    "Authenticator",
    "BearerTokens",
    "Server",
    "ServerSettings",
    "connect",
    "connect_peer",
    "load_settings",
    "retry_unavailable",
    "rpc_errors",
    "run_service",
]

_HOMES = {
    "Authenticator": "auth",
    "BearerTokens": "auth",
    "Server": "server",
    "ServerSettings": "settings",
    "connect": "client",
    "connect_peer": "client",
    "load_settings": "settings",
    "retry_unavailable": "retry",
    "rpc_errors": "errors",
    "run_service": "service",
}


def __getattr__(name: str) -> Any:
    """Imports on first use: a command that only calls must not wait for what only serves."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
