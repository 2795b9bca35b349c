"""The command of an exec probe, against a real health port."""

from __future__ import annotations

import subprocess
import sys

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
    assert "UNAVAILABLE" in gone.stderr


def test_wrong_arguments_are_told() -> None:
    wrong = probe()
    assert wrong.returncode == 2
    assert "usage:" in wrong.stderr
