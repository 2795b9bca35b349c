"""The processes that agents of PyPI train with: theirs, and an inference service with a script."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.processes import free_port, wait_for_port
from support.scripted_inference import SCRIPT
from support.template_tokenizer import shipped

TESTS = Path(__file__).parents[1]
PYTHON = os.environ.get("PODIUM_TEST_AGENTS_PYTHON", "")


@asynccontextmanager
async def scripted_inference(
    model: Path, folder: Path, registry: str, script: Sequence[tuple[str, str]]
) -> AsyncIterator[str]:
    """The address of an inference service over the tokenizer and configuration of `model`."""
    port, http, health, metrics = (free_port() for _ in range(4))
    prefix = "PODIUM_INFERENCE_"
    environment = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        SCRIPT: json.dumps(script),
        f"{prefix}PORT": str(port),
        f"{prefix}HTTP_PORT": str(http),
        f"{prefix}HEALTH_PORT": str(health),
        f"{prefix}METRICS_PORT": str(metrics),
        f"{prefix}MODEL": str(model),
        f"{prefix}DATA_DIR": str(folder / "inference"),
        f"{prefix}REGISTRY_ADDRESS": registry,
        # Has tools, which SmolLM2's own has not, and its signs.
        f"{prefix}CHAT_TEMPLATE": shipped("qwen2_5"),
    }
    with (folder / "inference.log").open("wb") as log:
        command = [sys.executable, "-m", "support.scripted_inference"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        await wait_for_port(port, process)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@dataclass
class Agents:
    """The process of the agents."""

    process: asyncio.subprocess.Process
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = field(default_factory=dict)

    async def ask(self, agent: str, **arguments: str) -> str:
        """What the agent answers; raises AssertionError with what it raised."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        line = json.dumps({"number": number, "agent": agent, **arguments})
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        said = await answer
        assert "error" not in said, said["error"]
        return str(said["answer"])

    async def listen(self) -> None:
        """Takes answers until the process ends."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            said = json.loads(line)
            self._waiting.pop(said["number"]).set_result(said)
        for waiting in self._waiting.values():
            waiting.set_exception(AssertionError("the agents' process has ended"))


@asynccontextmanager
async def named_agents() -> AsyncIterator[Agents]:
    """The agents in their own interpreter, without Podium."""
    process = await asyncio.create_subprocess_exec(
        *(PYTHON, "-m", "named_agents"),
        env={**os.environ, "PYTHONPATH": str(TESTS / "support")},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    agents = Agents(process)
    listening = asyncio.create_task(agents.listen())
    try:
        yield agents
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        await listening
