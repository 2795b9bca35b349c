"""How an HTTP server of the standard library ends at once."""

from __future__ import annotations

import socket
from contextlib import suppress
from socketserver import TCPServer


def end_http_server(server: TCPServer) -> None:
    """Takes no more requests, ends `serve_forever` in its thread, and frees the port. Idempotent.

    The thread looks twice a second whether to end; a listener that was shut wakes it now.
    """
    with suppress(OSError):
        server.socket.shutdown(socket.SHUT_RDWR)
    server.shutdown()
    server.server_close()
