"""How services speak to each other: servers, channels, errors, retries."""

from podium.rpc.auth import Authenticator, BearerTokens
from podium.rpc.client import connect
from podium.rpc.errors import rpc_errors
from podium.rpc.retry import retry_unavailable
from podium.rpc.server import Server
from podium.rpc.service import run_service
from podium.rpc.settings import ServerSettings, load_settings

__all__ = [
    "Authenticator",
    "BearerTokens",
    "Server",
    "ServerSettings",
    "connect",
    "load_settings",
    "retry_unavailable",
    "rpc_errors",
    "run_service",
]
