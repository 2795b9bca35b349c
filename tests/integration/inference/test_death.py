"""An engine that dies: callers are told, the service comes back, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from podium.core.errors import UnavailableError
from podium.inference.v1 import inference_service_pb2 as pb
from podium.rpc import rpc_errors
from support.pool import TinyPool, request

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.timeout(300),
]

PROMPT = list(range(1000, 1040))


def children(pid: int) -> list[int]:
    """Processes that a process started, and theirs."""
    direct = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return direct + [grandchild for child in direct for grandchild in children(child)]


async def gone(pids: list[int]) -> None:
    async with asyncio.timeout(20):
        while any(_lives(pid) for pid in pids):
            await asyncio.sleep(0.1)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_an_engine_killed_in_mid_stream(shared: TinyPool) -> None:
    stack = shared.stack
    asked = request(PROMPT, seed=6, max_tokens=1900)
    stream = shared.stub.StreamGenerate(
        pb.StreamGenerateRequest(
            prompt_token_ids=asked.prompt_token_ids,
            sampling=asked.sampling,
        )
    )
    await anext(aiter(stream))
    before = stack.pid("inference")
    (engine,) = [pid for pid in children(before) if "EngineCore" in _name(pid)]
    os.kill(engine, signal.SIGKILL)
    with pytest.raises(UnavailableError), rpc_errors("inference"):
        async for _ in stream:
            pass
    async with asyncio.timeout(60):
        while stack.restarts("inference") == 0:
            await asyncio.sleep(0.1)
    await stack.wait_ready("inference", within=120)
    assert stack.pid("inference") != before
    await gone([before, engine])
    reply = await shared.stub.Generate(request(PROMPT), timeout=60, wait_for_ready=True)
    assert reply.generation.token_ids


async def test_a_killed_service_leaves_no_engine_behind(shared: TinyPool) -> None:
    service = shared.stack.pid("inference")
    engines = children(service)
    assert engines
    os.kill(service, signal.SIGKILL)
    await gone([service, *engines])
    await shared.stack.wait_ready("inference", within=120)


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
