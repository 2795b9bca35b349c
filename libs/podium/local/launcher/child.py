"""One service as a child process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from podium.local.launcher import trampoline

# Without site-packages Python starts in a few milliseconds.
_ISOLATED = (sys.executable, "-I", "-S")


class Child:
    """A running `python -P -m MODULE ARGUMENT…`, leader of its own process group.

    A group of its own keeps the terminal's Ctrl-C from reaching it before the
    launcher has decided on an order, and lets what it leaves behind be killed.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    @classmethod
    async def start(
        cls,
        module: str,
        environment: Mapping[str, str],
        log: Path,
        arguments: Sequence[str] = (),
    ) -> Child:
        """Starts it, appending its output to `log`."""
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *_ISOLATED,
                str(Path(trampoline.__file__)),
                str(os.getpid()),
                sys.executable,
                # The folder that somebody stands in may have a types.py or a datasets.py.
                "-P",
                "-m",
                module,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment),
                start_new_session=True,
            )
        return cls(process)

    async def wait(self) -> int:
        """Waits for its end; a negative code is the signal that ended it."""
        return await self._process.wait()

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.returncode

    def terminate(self) -> None:
        """Asks it to drain and end."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill_group(self) -> None:
        """Kills it and everything that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
