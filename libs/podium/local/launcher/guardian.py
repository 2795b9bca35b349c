"""The launcher's end of `podium.local.launcher.guard`."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

from podium.local.launcher import guard


class Guardian:
    """A small process that kills the watched groups when this one dies."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    def watch(self, group: int) -> None:
        """Has a process group killed if this process dies."""
        self._send(f"+{group}\n")

    def forget(self, group: int) -> None:
        """Takes a group off again, once it has ended."""
        self._send(f"-{group}\n")

    def close(self) -> None:
        """Ends the guard. Groups still watched are killed by it."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait(timeout=10)

    def _send(self, line: str) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.write(line.encode())
