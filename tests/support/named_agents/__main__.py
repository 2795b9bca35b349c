"""Answers with the agents of this folder: a JSON line in for each question, and one out.

`python -m named_agents`, in an environment that has their packages. A line has the `agent`, as
`module:function`, and that function's arguments.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from typing import Any


async def _answered(line: str) -> str:
    asked = json.loads(line)
    number, (module, name) = asked.pop("number"), asked.pop("agent").split(":")
    said: dict[str, Any] = {"number": number}
    try:
        agent = getattr(importlib.import_module(f"named_agents.{module}"), name)
        said["answer"] = await agent(**asked)
    except Exception as error:
        said["error"] = f"{type(error).__name__}: {error}"
    return json.dumps(said)


async def main() -> None:
    """Until there are no more questions; several at a time."""
    async with asyncio.TaskGroup() as tasks:
        while line := await asyncio.to_thread(sys.stdin.readline):
            task = tasks.create_task(_answered(line))
            task.add_done_callback(lambda done: print(done.result(), flush=True))


if __name__ == "__main__":
    asyncio.run(main())
