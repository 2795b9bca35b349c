"""Worker processes: started with one secret's variables, heard, and ended with all they started."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from podium_tracking.domain.trackers import VARIABLES

_MARK = "PODIUM_TRACKING_WORKER"
_SHARED = "WANDB_SERVICE"
"""Where W&B's client finds another process's service: one that no worker could kill."""
_QUIET = {
    # Trackers' clients tell their makers how they are used, and what went wrong.
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
    "WANDB_DISABLE_CODE": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    # MLflow looks for a program that images do not have.
    "GIT_PYTHON_REFRESH": "quiet",
    "OTEL_SDK_DISABLED": "false",
}


class TrackerProcess:
    """A running `python -m podium_tracking.worker`."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, mark: str
    ) -> None:
        self._process = process
        self._reader = reader
        self._mark = mark

    @classmethod
    async def start(cls, job_id: str, tracker: str, secret: Mapping[str, str]) -> TrackerProcess:
        """Its environment is this process's without any tracker's variables, and the secret's."""
        every = {_SHARED, *(name for names in VARIABLES.values() for name in names)}
        own = {name: value for name, value in os.environ.items() if name not in every}
        mark = uuid.uuid4().hex
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "podium_tracking.worker",
                job_id,
                tracker,
                str(writing),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                env={**own, **_QUIET, **secret, _MARK: mark},
                pass_fds=(writing,),
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb")
        )
        return cls(process, reader, mark)

    async def next(self) -> tuple[str, int] | None:
        """What it tells next, and the last step delivered; None when it has ended."""
        line = await self._reader.readline()
        if not line:
            return None
        with suppress(ValueError, KeyError):
            found = json.loads(line)
            return str(found["what"]), int(found["step"])
        return "start", 0

    async def wait(self) -> int:
        """Its exit status."""
        return await self._process.wait()

    def stop(self) -> None:
        """Asks it to end after what it is at."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    async def kill(self) -> None:
        """Kills it and everything that it started, wherever that is in the tree by now."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await asyncio.to_thread(_kill_marked, f"{_MARK}={self._mark}".encode())
        await self._process.wait()


def _kill_marked(mark: bytes) -> None:
    """W&B's own process leads a session of its own: only its environment says whose it is."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
