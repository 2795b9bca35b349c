"""Processes in which a scorer's function runs, each replaced when it hangs or dies."""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from podium.scorers.answers import ScorerFailedError
from podium.scorers.worker import write_frame

_LENGTH = struct.Struct(">Q")
_MAX_ANSWER_BYTES = 4 * 1024 * 1024
_START_SECONDS = 300.0
_MAX_WAIT_SECONDS = 30.0


class BusyError(Exception):
    """No process was free for too long."""


class _Worker:
    """One process; whoever has it uses it alone."""

    def __init__(self, path: str) -> None:
        # A session of its own: what the function starts goes with it, and ^C does not reach it.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "podium.scorers.worker", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def begin(self) -> None:
        """Waits until the function is there.

        Raises:
            ScorerFailedError: it cannot be loaded.
        """
        found = self._read(_START_SECONDS)
        if words := found.get("error"):
            raise ScorerFailedError(words)

    def score(self, content: bytes, seconds: float) -> dict[str, Any]:
        """The answer on one group.

        Raises:
            ScorerFailedError: there is none; then the process is of no more use.
        """
        assert self._process.stdin
        # From a thread: a function that reads nothing must not hold who writes to it.
        writer = threading.Thread(target=self._write, args=(content,), daemon=True)
        writer.start()
        return self._read(seconds)

    def _write(self, content: bytes) -> None:
        assert self._process.stdin
        with suppress(OSError, ValueError):
            write_frame(self._process.stdin, content)  # type: ignore[arg-type]

    def _read(self, seconds: float) -> dict[str, Any]:
        until = time.monotonic() + seconds
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size, until, seconds))
        if length > _MAX_ANSWER_BYTES:
            raise ScorerFailedError(f"its answer has {length} bytes; at most {_MAX_ANSWER_BYTES}")
        found: dict[str, Any] = json.loads(self._exactly(length, until, seconds))
        return found

    def _exactly(self, count: int, until: float, seconds: float) -> bytes:
        assert self._process.stdout
        descriptor = self._process.stdout.fileno()
        content = b""
        while len(content) < count:
            left = until - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise ScorerFailedError(f"it had no answer within {seconds:g} seconds")
            piece = os.read(descriptor, count - len(content))
            if not piece:
                raise ScorerFailedError(f"its process ended, {self._ending()}")
            content += piece
        return content

    def _ending(self) -> str:
        try:
            code = self._process.wait(10)
        except subprocess.TimeoutExpired:
            return "or closed its output"
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"

    def end(self) -> None:
        """Ends the process and what it started; idempotent."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr]


class ScorerWorkers:
    """Some processes with one function."""

    def __init__(self, path: str, count: int, seconds: float) -> None:
        """Starts them.

        Args:
            path: `package.module:function`.
            count: how many groups are scored at once.
            seconds: how long one may take.

        Raises:
            ScorerFailedError: the function cannot be loaded.
        """
        self._path = path
        self._seconds = seconds
        self._free: queue.SimpleQueue[_Worker | None] = queue.SimpleQueue()
        self._all: set[_Worker] = set()
        self._lock = threading.Lock()
        self._ended = False
        started = []
        try:
            started = [self._started() for _ in range(count)]
            for worker in started:
                worker.begin()
        except BaseException:
            self.end()
            raise
        for worker in started:
            self._free.put(worker)

    def score(self, content: bytes) -> dict[str, Any]:
        """The answer on a group: `scores` and `reasons`, or `error`.

        Args:
            content: the group in JSON.

        Raises:
            BusyError: all processes are at work for too long.
        """
        try:
            worker = self._free.get(timeout=min(self._seconds, _MAX_WAIT_SECONDS))
        except queue.Empty:
            raise BusyError from None
        # A place without a process is that of one that could not be started again.
        replacement = worker
        try:
            if worker is None:
                worker = replacement = self._started()
                worker.begin()
            return worker.score(content, self._seconds)
        except ScorerFailedError as error:
            replacement = None
            if worker is not None:
                self._drop(worker)
            return {"error": str(error)}
        finally:
            self._free.put(replacement)

    def end(self) -> None:
        """Ends all processes; idempotent."""
        with self._lock:
            self._ended = True
            workers = list(self._all)
        for worker in workers:
            self._drop(worker)

    def _started(self) -> _Worker:
        with self._lock:
            if self._ended:
                raise ScorerFailedError("the server ends")
            worker = _Worker(self._path)
            self._all.add(worker)
        return worker

    def _drop(self, worker: _Worker) -> None:
        worker.end()
        with self._lock:
            self._all.discard(worker)
