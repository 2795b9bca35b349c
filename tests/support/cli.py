"""Runs the `podium` command: `invoke` and `at_terminal` in this process, `podium` and `start` not.

Starting one costs a second of a core, so a process is for what only a process shows: how it
starts, what Ctrl-C does, the terminal that passwords are read from, and what ends with it. What
minds signals runs in this one too, by `support/main_thread.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from podium.cli.main import run
from support.terminal import Terminal

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


async def at_terminal(
    *arguments: str,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    streams: Collection[str] = ("stdout",),
    columns: int = 80,
    typed: str = "",
) -> Result:
    """As `invoke`, with some of stdin, stdout and stderr at one terminal.

    The result has what the terminal showed for each of them that is there.
    """
    return await asyncio.to_thread(
        _at_terminal, arguments, cwd, environment or {}, streams, Terminal(columns, typed)
    )


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
    *arguments: str,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    stderr: int = asyncio.subprocess.PIPE,
) -> asyncio.subprocess.Process:
    """Starts it with pipes for all three streams, or stderr to what is given."""
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
        stderr=stderr,
    )


def _variables(cwd: Path, given: Mapping[str, str]) -> dict[str, str]:
    """A command's environment: not what whoever runs the tests is logged in to."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PODIUM_")}
    models = {k: v for k, v in os.environ.items() if k == "PODIUM_MODELS_DIR"}
    return {**inherited, **models, "PODIUM_CONFIG_DIR": str(cwd / "config"), **given}


# A process has one folder, one environment and one set of streams.
_alone = threading.Lock()


def run_here(
    arguments: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str] | None,
    given: Mapping[str, TextIO],
) -> Result:
    """As `invoke`, in this thread, with some streams of one's own, which the result leaves out."""
    return _invoke(arguments, cwd, environment or {}, "", given)


def _invoke(
    arguments: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    stdin: str,
    given: Mapping[str, TextIO] | None = None,
) -> Result:
    with _alone, contextlib.ExitStack() as files:
        # Files, as a shell's redirections: each has a descriptor, and none is a terminal.
        streams = {
            name: files.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", newline=""))
            for name in ("stdin", "stdout", "stderr")
        }
        streams["stdin"].write(stdin)
        streams["stdin"].seek(0)
        used = {**streams, **(given or {})}
        with (
            _process_state(cwd, _variables(cwd, environment)),
            _input(used["stdin"]),
            contextlib.redirect_stdout(used["stdout"]),
            contextlib.redirect_stderr(used["stderr"]),
        ):
            code = run(list(arguments))
        for name in ("stdout", "stderr"):
            streams[name].seek(0)
        return Result(int(code), streams["stdout"].read(), streams["stderr"].read())


def _at_terminal(
    arguments: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    names: Collection[str],
    terminal: Terminal,
) -> Result:
    with contextlib.ExitStack() as opened:
        given = {
            name: opened.enter_context(terminal.open("r" if name == "stdin" else "w"))
            for name in names
        }
        done = _invoke(arguments, cwd, environment, "", given)
    shown = terminal.close()
    return Result(
        done.code,
        shown if "stdout" in names else done.out,
        shown if "stderr" in names else done.err,
    )


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
