"""The command of an exec probe, against a real health port."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from contextlib import suppress

import pytest
from podium.kit.rpc import Server, ServerSettings


def probe(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "podium.probe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


async def test_it_says_what_the_health_port_says() -> None:
    import asyncio

    server = Server("probed", ServerSettings())
    server.add(lambda servicer, to: None, object(), "podium.x.v1.XService")
    await server.start_probes()
    address = f"127.0.0.1:{server.health_port}"
    starting = await asyncio.to_thread(probe, address)
    await server.start()
    alive = await asyncio.to_thread(probe, address)
    ready = await asyncio.to_thread(probe, address, "podium.x.v1.XService")
    unknown = await asyncio.to_thread(probe, address, "podium.y.v1.YService")
    await server.set_serving(False)
    busy = await asyncio.to_thread(probe, address, "podium.x.v1.XService")
    await server.stop(0)
    gone = await asyncio.to_thread(probe, address)
    codes = [r.returncode for r in (starting, alive, ready, unknown, busy, gone)]
    assert codes == [1, 0, 0, 1, 1, 1]
    assert "NOT_SERVING" in busy.stderr
    assert "not known there" in unknown.stderr
    assert "refused" in gone.stderr


def test_wrong_arguments_are_told() -> None:
    wrong = probe()
    assert wrong.returncode == 2
    assert "usage:" in wrong.stderr


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"", "the connection was closed"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no gRPC"),
        (b"\0\0\0\x04\0\0\0\0\0" + b"\0\0\x08\x07\0\0\0\0\0" + bytes(8), "broken off"),
        (b"\0\0\x04\x03\0\0\0\0\x01" + bytes(4), "broken off"),
        (b"\0\0\x08\0\0\0\0\0\x01" + b"\0\0\0\0\x03" + b"\x12\x01x", "no HealthCheckResponse"),
        (b"\0\0\x05\0\x01\0\0\0\x01" + bytes(5), "UNKNOWN"),
    ],
    ids=["nothing", "another protocol", "farewell", "a reset", "another message", "no status"],
)
def test_what_no_health_port_answers_is_not_taken_for_one(said: bytes, told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            # A probe that has seen enough hangs up at once.
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                # Until the other side has gone: what is closed unread may be lost.
                while connection.recv(65536):
                    pass

        threading.Thread(target=answer, daemon=True).start()
        done = probe(f"127.0.0.1:{server.getsockname()[1]}")
    assert done.returncode == 1
    assert told in done.stderr


def test_neither_it_nor_what_it_loads_is_grpc() -> None:
    """A kubelet starts it every few seconds in every pod."""
    loaded = "import sys, podium.probe; print([m for m in sys.modules if m in ('grpc', 'asyncio')])"
    command = [sys.executable, "-c", loaded]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
