"""Commands that mind signals, in the tests' process: on its main thread, the test on another."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import queue
import signal
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, Concatenate, ParamSpec

from support.cli import Result, run_here

P = ParamSpec("P")


class Command:
    """A command that was started."""

    def __init__(self, stderr: asyncio.StreamReader, ended: Future[Result]) -> None:
        self.stderr = stderr
        self._ended = ended

    async def wait(self) -> Result:
        """What it left behind; of stderr what nobody has read."""
        result = await asyncio.wrap_future(self._ended)
        return Result(result.code, result.out, (await self.stderr.read()).decode())

    def send_signal(self, number: signal.Signals) -> None:
        """To this process, whose command minds it."""
        assert not self._ended.done(), "the signal would end the tests"
        os.kill(os.getpid(), number)


class MainThread:
    """Runs one command after the other. No `invoke` goes beside one: a process has one folder."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._last: Command | None = None

    async def start(
        self, *arguments: str, cwd: Path, environment: Mapping[str, str] | None = None
    ) -> Command:
        """Its stderr can be read as it comes."""
        ours, theirs = os.pipe()
        reader: asyncio.StreamReader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb")
        )
        ended: Future[Result] = Future()

        def command() -> None:
            with open(theirs, "w", encoding="utf-8") as stderr:
                # What the command does not mind ends it, and not the tests.
                before = signal.signal(signal.SIGTERM, _not_minded)
                try:
                    ended.set_result(run_here(arguments, cwd, environment, {"stderr": stderr}))
                except BaseException as error:
                    ended.set_exception(error)
                finally:
                    signal.signal(signal.SIGTERM, before)

        self._asked.put(command)
        self._last = Command(reader, ended)
        return self._last

    async def podium(self, *arguments: str, cwd: Path) -> Result:
        """Runs it to its end."""
        return await (await self.start(*arguments, cwd=cwd)).wait()

    def run_until(self, test: Future[None]) -> None:
        """Runs what is asked for until the test has ended; what it left running is told to end."""
        test.add_done_callback(self._end)
        while (command := self._asked.get()) is not None:
            command()

    def _end(self, _: Future[None]) -> None:
        if self._last is not None:
            with contextlib.suppress(AssertionError):
                self._last.send_signal(signal.SIGTERM)
        self._asked.put(None)


class NotMindedError(BaseException):
    """A command was sent a signal that it does not mind."""


def _not_minded(number: int, frame: FrameType | None) -> None:
    raise NotMindedError(signal.Signals(number).name)


def beside_commands(
    test: Callable[Concatenate[MainThread, P], Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """Runs the test in another thread's loop; its first argument starts commands in this one."""

    @functools.wraps(test)
    def run(*given: P.args, **fixtures: P.kwargs) -> None:
        main = MainThread()
        with ThreadPoolExecutor(1) as executor:
            done = executor.submit(asyncio.run, test(main, *given, **fixtures))
            main.run_until(done)
            done.result()

    own = inspect.signature(test)
    fixtures = list(own.parameters.values())[1:]
    vars(run)["__signature__"] = own.replace(parameters=fixtures)
    return run
