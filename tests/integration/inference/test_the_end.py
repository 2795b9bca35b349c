"""An engine that dies: callers are told, the service comes back, and nothing is left behind.

The last of the folder by its name: the second test ends the pool that the others share.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from podium.core.errors import UnavailableError
from podium.inference.v1 import inference_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from support.pool import TinyPool, request
from support.process_tree import descendants, gone

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.timeout(300),
]

PROMPT = list(range(1000, 1040))


@pytest.mark.long
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
    (engine,) = [pid for pid in descendants(before) if "EngineCore" in _name(pid)]
    os.kill(engine, signal.SIGKILL)
    with pytest.raises(UnavailableError), rpc_errors("inference"):
        async for _ in stream:
            pass
    async with asyncio.timeout(120):
        while stack.restarts("inference") == 0:
            await asyncio.sleep(0.1)
    await stack.wait_ready("inference", within=120)
    assert stack.pid("inference") != before
    await gone([before, engine], within=120)
    reply = await shared.stub.Generate(request(PROMPT), timeout=60, wait_for_ready=True)
    assert reply.generation.token_ids


async def test_a_killed_service_leaves_no_engine_behind(shared: TinyPool) -> None:
    service = shared.stack.pid("inference")
    engines = descendants(service)
    assert engines
    os.kill(service, signal.SIGKILL)
    await gone([service, *engines], within=120)


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
