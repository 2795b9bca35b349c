"""Runs the `podium` command: `invoke` in this process, `podium` and `start` in one of its own.

Starting one costs a second of a core, so a process is for what only a process shows: how it
starts, signals, terminals, and services that it leaves running.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from podium.cli.main import run

COMMAND = (sys.executable, "-m", "podium.cli")


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str


async def invoke(
    *arguments: str,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
) -> Result:
    """As `podium`, in a thread: the doubles that it talks to are served by the test's own loop."""
    return await asyncio.to_thread(_invoke, arguments, cwd, environment or {}, stdin)


async def podium(
    *arguments: str,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
    within: float = 200.0,
) -> Result:
    """Runs it to its end; PODIUM_* of the test's own environment is not passed on."""
    process = await start(*arguments, cwd=cwd, environment=environment)
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), within)
    return Result(process.returncode or 0, out.decode(), err.decode())


async def start(
    *arguments: str, cwd: Path, environment: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Starts it with pipes for all three streams."""
    return await asyncio.create_subprocess_exec(
        # A shell's background job ignores Ctrl-C, and so would every child of these tests.
        "env",
        "--default-signal=INT",
        *COMMAND,
        *arguments,
        cwd=cwd,
        env=_variables(cwd, environment or {}),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def _variables(cwd: Path, given: Mapping[str, str]) -> dict[str, str]:
    """A command's environment: not what whoever runs the tests is logged in to."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PODIUM_")}
    models = {k: v for k, v in os.environ.items() if k == "PODIUM_MODELS_DIR"}
    return {**inherited, **models, "PODIUM_CONFIG_DIR": str(cwd / "config"), **given}


# A process has one folder, one environment and one set of streams.
_alone = threading.Lock()


def _invoke(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], stdin: str
) -> Result:
    with (
        _alone,
        # Files, as a shell's redirections: each has a descriptor, and none is a terminal.
        tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as typed,
        tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as err,
    ):
        typed.write(stdin)
        typed.seek(0)
        with (
            _process_state(cwd, _variables(cwd, environment)),
            _input(typed),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = run(list(arguments))
        for stream in (out, err):
            stream.seek(0)
        return Result(int(code), out.read(), err.read())


@contextlib.contextmanager
def _input(stream: TextIO) -> Iterator[None]:
    before, sys.stdin = sys.stdin, stream
    try:
        yield
    finally:
        sys.stdin = before


@contextlib.contextmanager
def _process_state(cwd: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """What ends with a process: its folder, its variables and the modules of its folder."""
    before = dict(os.environ)
    modules, path = set(sys.modules), list(sys.path)
    _change_environment(variables)
    try:
        with contextlib.chdir(cwd):
            yield
    finally:
        _change_environment(before)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            file = vars(sys.modules[name]).get("__file__")
            if file and Path(file).is_relative_to(cwd):
                del sys.modules[name]


def _change_environment(wanted: Mapping[str, str]) -> None:
    """By differences: the test's servers read it meanwhile."""
    for name in set(os.environ) - set(wanted):
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
