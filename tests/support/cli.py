"""Runs the real `podium` command in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

COMMAND = (sys.executable, "-m", "podium.cli")


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str


async def podium(
    *arguments: str,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
    within: float = 60.0,
) -> Result:
    """Runs it to its end; PODIUM_* of the test's own environment is not passed on."""
    process = await start(*arguments, cwd=cwd, environment=environment)
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), within)
    return Result(process.returncode or 0, out.decode(), err.decode())


async def start(
    *arguments: str, cwd: Path, environment: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Starts it with pipes for all three streams."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PODIUM_")}
    models = {k: v for k, v in os.environ.items() if k == "PODIUM_MODELS_DIR"}
    return await asyncio.create_subprocess_exec(
        # A shell's background job ignores Ctrl-C, and so would every child of these tests.
        "env",
        "--default-signal=INT",
        *COMMAND,
        *arguments,
        cwd=cwd,
        # Not what whoever runs the tests is logged in to.
        env={
            **inherited,
            **models,
            "PODIUM_CONFIG_DIR": str(cwd / "config"),
            **(environment or {}),
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
