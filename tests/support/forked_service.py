"""Services as processes, forked by a program that has imported what they need.

A service imports for a second or two of a core before it serves, a trainer for six, and tests that
kill services start hundreds (decision 113). What a test runs is `main()` of the service's module,
in a process of its own with its own environment, folder and log.
"""

from __future__ import annotations

import atexit
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import forkserver
from pathlib import Path

_imported = [f"podium_{name}.__main__" for name in ("registry", "controller", "rollout")]
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_imported)


def import_before(module: str) -> None:
    """Has a module imported before anything is forked; to be called before the first test.

    It may start no thread, which whatever is forked would lack.
    """
    _imported.append(module)
    _context.set_forkserver_preload(_imported)


class ForkedService:
    """One that runs; its methods are those of `subprocess.Popen`."""

    def __init__(
        self, module: str, environment: Mapping[str, str], folder: Path, log: Path
    ) -> None:
        """`main` of `module.__main__`, in this folder and environment; appends to the log."""
        _run_server()
        # As a daemon it ends with the tests.
        self._process = _context.Process(
            target=_main, args=(module, dict(environment), folder, log), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, or less than 0 for a signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run_server() -> None:
    before = os.environ.get("PYTHONPATH")
    # It looks where we look; else it passes over what it does not find.
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _main(module: str, environment: dict[str, str], folder: Path, log: Path) -> None:
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    # Whoever forks takes no Ctrl-C, and what it forks only if it is told to.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main = importlib.import_module(f"{module}.__main__")
    sys.argv = [str(main.__file__)]
    try:
        main.main()
    finally:
        # multiprocessing ends a process without them.
        atexit._run_exitfuncs()
