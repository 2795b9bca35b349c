"""Signals that ask a command to end, and terminals and readers that are gone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import TextIO


def on_end(ask: Callable[[], None], *, interrupt: bool) -> None:
    """Has SIGTERM and SIGHUP, and Ctrl-C if `interrupt`, call `ask` on the running loop.

    Where SIGHUP is ignored, as by nohup, it stays so. After one the terminal may be gone: what is
    written there from then on goes nowhere, and ends nothing.
    """
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ask)
    if interrupt:
        loop.add_signal_handler(signal.SIGINT, ask)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        return
    at_terminal = [each for each in (sys.stdout, sys.stderr) if each.isatty()]

    def hang_up() -> None:
        for stream in at_terminal:
            if not stream.isatty():
                silence(stream)
        ask()

    loop.add_signal_handler(signal.SIGHUP, hang_up)


def silence(stream: TextIO) -> None:
    """Has what is written to it go nowhere: nobody reads it any more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
