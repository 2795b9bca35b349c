"""What a process started, and whether it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Processes that a process started, and theirs."""
    direct = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return direct + [grandchild for child in direct for grandchild in descendants(child)]


async def gone(pids: Sequence[int], *, within: float) -> None:
    """Returns when none of them runs any more.

    Raises:
        TimeoutError: one still does after `within` seconds.
    """
    async with asyncio.timeout(within):
        while any(alive(pid) for pid in pids):
            await asyncio.sleep(0.1)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
