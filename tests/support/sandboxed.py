"""Programs in the real sandbox, for its tests, and the same programs outside of it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from podium.environments.sandbox import Limits, Outcome, Sandbox

MIB = 1024 * 1024
MARKS = itertools.count(os.getpid() * 1000)


def sandbox(**limits: Any) -> Sandbox:
    return Sandbox(Limits(**{"wall_seconds": 60, "cpu_seconds": 30, **limits}))


async def run(program: str, stdin: bytes = b"", **limits: Any) -> Outcome:
    return await sandbox(**limits).run(program, stdin)


async def found(program: str, **limits: Any) -> Any:
    """What the program prints, as JSON."""
    outcome = await run(program, **limits)
    assert outcome.returncode == 0, outcome
    return json.loads(outcome.stdout)


def outside(program: str, argument: str = "") -> Any:
    """What the same program prints in an ordinary process, as JSON."""
    command = [sys.executable, "-c", program, argument]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout)


class Marked:
    """A sandbox whose processes can be told from all others of the machine."""

    def __init__(self, **limits: Any) -> None:
        self._mark = next(MARKS)
        self.sandbox = sandbox(cpu_seconds=self._mark, **limits)

    def pids(self) -> list[int]:
        wanted = f'"RLIMIT_CPU": {self._mark},'.encode()
        return [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if wanted in read(path)
        ]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
