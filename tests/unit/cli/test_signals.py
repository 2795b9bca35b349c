"""Closing a terminal, and nohup: each in a process of its own, which a signal may end."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

# Tells when it minds signals, and in a file what came of them.
PROGRAM = """
import asyncio, os, sys
from podium.cli.output import note
from podium.cli.signals import on_end

async def main(told):
    asked = asyncio.Event()
    on_end(asked.set, interrupt=False)
    note("minds signals")
    await asked.wait()
    note("pausing")
    told.write("paused")
    note("stopped")

with open(sys.argv[1], "w") as told:
    asyncio.run(main(told))
"""


def start(told: Path, stderr: int, ignored: bool) -> subprocess.Popen[bytes]:
    shell = "trap '' HUP; exec \"$@\"" if ignored else 'exec "$@"'
    return subprocess.Popen(
        ["sh", "-c", shell, "sh", sys.executable, "-c", PROGRAM, str(told)],
        stderr=stderr,
        start_new_session=True,
    )


def test_what_a_closed_terminal_cannot_show_ends_nothing(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = start(tmp_path / "told", theirs, ignored=False)
    os.close(theirs)
    assert b"minds signals" in os.read(ours, 1024)
    os.close(ours)
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 0
    assert (tmp_path / "told").read_text() == "paused"


def test_nohup_is_honoured(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    process = start(tmp_path / "told", writing, ignored=True)
    os.close(writing)
    with os.fdopen(reading) as stderr:
        assert stderr.readline() == "minds signals\n"
        status = Path(f"/proc/{process.pid}/status").read_text().split("SigIgn:")[1]
        assert int(status.split()[0], 16) & 1 << (signal.SIGHUP - 1)
        process.terminate()
        assert stderr.read() == "pausing\nstopped\n"
    assert process.wait(60) == 0
