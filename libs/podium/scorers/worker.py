"""The process in which a scorer's function runs: `python -m podium.scorers.worker PATH`.

Whoever started it writes groups to its input and reads answers from its output, each a
frame: its length in 8 bytes, and JSON. The first answer says that the function was found.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

from podium.core.outside import clean
from podium.scorers.answers import ScorerFailedError, answer_of

_LENGTH = struct.Struct(">Q")
_MAX_WORDS = 1000


def write_frame(stream: BinaryIO, content: bytes) -> None:
    """Writes one frame."""
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def load_function(path: str) -> Callable[..., Any]:
    """What `package.module:function` names.

    Raises:
        ScorerFailedError: there is none, or it cannot be called.
    """
    module, colon, name = path.partition(":")
    if not module or not colon or not name:
        raise ScorerFailedError(f"got {path!r}; allowed is package.module:function")
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        words = f"{type(error).__name__}: {error}"
        raise ScorerFailedError(f"{path!r} cannot be loaded: {words}") from error
    if not callable(found):
        raise ScorerFailedError(f"{path!r} is a {type(found).__name__}, and no function")
    return found


def words_of(error: BaseException) -> str:
    """What was raised and where, in one line."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        text += f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})"
    return clean(" ".join(text.split())[:_MAX_WORDS])


def answer(function: Callable[..., Any], runner: asyncio.Runner, content: bytes) -> dict[str, Any]:
    """The function's answer on one group, or why there is none, as `error`."""
    group = json.loads(content)
    trajectories = group["trajectories"]
    try:
        returned = function(group["scenario"], trajectories)
        if inspect.isawaitable(returned):
            returned = runner.run(_awaited(returned))
        return answer_of(returned, len(trajectories))
    except ScorerFailedError as error:
        return {"error": str(error)}
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        return {"error": f"it raised {words_of(error)}"}


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


def main() -> None:
    """Answers until its input ends."""
    # What the function prints is for people, and is no part of an answer.
    given, taken = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.path.insert(0, "")
    try:
        function = load_function(sys.argv[1])
    except ScorerFailedError as error:
        if error.__cause__:
            traceback.print_exception(error.__cause__)
        write_frame(taken, json.dumps({"error": str(error)}).encode())
        return
    write_frame(taken, b"{}")
    with asyncio.Runner() as runner:
        while head := given.read(_LENGTH.size):
            content = given.read(_LENGTH.unpack(head)[0])
            write_frame(taken, json.dumps(answer(function, runner, content)).encode())


if __name__ == "__main__":
    main()
