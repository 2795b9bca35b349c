"""A terminal that a command in this process can have for any of its streams."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
import threading
from typing import TextIO


class Terminal:
    """Holds what was shown; it is read meanwhile, for a terminal holds a few kB."""

    def __init__(self, columns: int = 80, typed: str = "") -> None:
        self._ours, self._theirs = pty.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._shown = b""
        os.write(self._ours, typed.encode())
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def open(self, mode: str) -> TextIO:
        """A stream of it, `"r"` or `"w"`."""
        return open(os.dup(self._theirs), mode, encoding="utf-8", newline=None)

    def close(self) -> str:
        """What was shown, its lines ended by CR and LF; every stream is closed already."""
        os.close(self._theirs)
        self._reading.join()
        os.close(self._ours)
        return self._shown.decode()

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._ours, 65536)
            except OSError:  # Nobody has it open any more.
                return
            self._shown += part
