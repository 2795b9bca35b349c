"""Asks a submission in its sandbox and compares its answers out here."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from podium.core.time_limits import time_left
from podium.environments.sandbox import Limits, Process, Sandbox

LIVES = 3
"""A submission that dies or hangs so often is not asked again."""

SUBMISSION_SECONDS = 20.0
"""What all calls of one submission may take together; half the time that its step has, if less."""

_LIMITS = Limits(
    wall_seconds=SUBMISSION_SECONDS,
    cpu_seconds=10,
    memory_bytes=128 * 1024 * 1024,
    disk_bytes=0,
    open_files=16,
    output_bytes=256 * 1024,
)


@dataclass(frozen=True)
class CallResult:
    """What came of one input: a value, or why there is none."""

    value: Any = None
    error: str = ""


@lru_cache(maxsize=1)
def shared_sandbox() -> Sandbox:
    """The one that all episodes of this process wait for."""
    return Sandbox(_LIMITS)


class SubmittedCode:
    """Code that claims to define a function; a context manager, which ends its process."""

    def __init__(self, code: str, function: str, case_seconds: float) -> None:
        """`case_seconds` is what one call may take, and what defining it may take."""
        self._definition = {"code": code, "function": function}
        self._seconds = case_seconds
        # One that is slow but never too slow must be graded too, and not cost its step the limit.
        self._left = min(SUBMISSION_SECONDS, time_left() / 2)
        self._running = AsyncExitStack()
        self._process: Process | None = None
        self._lives = LIVES
        self._last_words = CallResult(error="it died or hung too often")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    async def answers(self, inputs: Sequence[Sequence[Any]]) -> list[CallResult]:
        """What it returns for each of the arguments, asked one after the other in one process.

        After it died or hung the rest is asked in a new one.

        Raises:
            FailedPreconditionError: no sandbox can be made here.
        """
        return [await self._answer(given) for given in inputs]

    async def _answer(self, given: Sequence[Any]) -> CallResult:
        if self._process is None and self._lives > 0 and self._left > 0:
            await self._begin()
        if self._process is None:
            return self._last_words
        answer = await self._ask(self._process, {"input": given})
        if answer is None:
            await self._end()
        return answer or CallResult(error="it gave no answer in time, or died")

    async def _begin(self) -> None:
        process = await self._running.enter_async_context(shared_sandbox().start(_harness()))
        defined = await self._ask(process, self._definition)
        if defined is not None and not defined.error:
            self._process = process
            return
        await self._end()
        self._lives = 0
        self._last_words = defined or CallResult(error="it hung or died while it was defined")

    async def _end(self) -> None:
        self._process = None
        self._lives -= 1
        if self._left <= 0:
            self._last_words = CallResult(error="its calls took too long together")
        await self._running.aclose()

    async def _ask(self, process: Process, question: Mapping[str, Any]) -> CallResult | None:
        # An answer that was written before the question was read cannot know this.
        identifier = secrets.token_hex(8)
        begun = time.monotonic()
        try:
            async with asyncio.timeout(min(self._seconds, self._left)):
                await process.write(json.dumps({"id": identifier, **question}).encode() + b"\n")
                line = await process.read_line()
        except TimeoutError:
            return None
        finally:
            self._left -= time.monotonic() - begun
        return _parse(line, identifier)


def _parse(line: bytes, identifier: str) -> CallResult | None:
    """None for what the harness did not write."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict) or answer.get("id") != identifier:
        return None
    if "error" in answer:
        return CallResult(error=_text(answer["error"]) or "an error without a text")
    return CallResult(answer.get("value"))


def _text(said: Any) -> str:
    """What a submission may have written in the harness's place is no text for sure."""
    return said if isinstance(said, str) else ""


def right(answer: CallResult, expected: Any) -> bool:
    """Whether it is the value that was expected.

    Numbers are compared to nine digits; true is not 1, and a tuple is a list.
    """
    return not answer.error and _same(answer.value, expected)


def _same(value: Any, expected: Any) -> bool:
    if isinstance(expected, bool) or isinstance(value, bool):
        return value is expected
    if isinstance(expected, int | float) and isinstance(value, int | float):
        try:
            return value == expected or math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-9)
        except OverflowError:
            return False
    if type(value) is not type(expected):
        return False
    if isinstance(expected, list):
        return len(value) == len(expected) and all(map(_same, value, expected))
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            _same(value[key], expected[key]) for key in expected
        )
    return bool(value == expected)


@lru_cache(maxsize=1)
def _harness() -> str:
    return Path(__file__).with_name("harness.py").read_text(encoding="utf-8")
