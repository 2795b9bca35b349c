"""A version's files on every node of an engine.

The leader has fetched and checked them; it hands them to the other nodes over vLLM's own channel,
and the first worker of each node writes them to the path that they have at the leader's. So the
other nodes need no credentials and no way to the registry, and have the bytes that were checked.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from podium.core.errors import UnavailableError

logger = logging.getLogger(__name__)

Rpc = Callable[..., Awaitable[list[str]]]
"""AsyncLLM's `collective_rpc`."""

_CHUNK_BYTES = 16 << 20
"""Of one message, between which the engine goes on generating."""


@asynccontextmanager
async def on_every_node(rpc: Rpc, folder: Path) -> AsyncIterator[None]:
    """The files of a folder are on every node, at the same path, while the block runs.

    Raises:
        UnavailableError: NODE_FILES, a node cannot store them.
    """
    try:
        for path in await asyncio.to_thread(_files, folder):
            await _send(rpc, path)
        yield
    finally:
        try:
            _check(folder, await rpc("podium_remove_files", args=(str(folder),)))
        except Exception as error:
            # The engine is dead, and the group ends with its folders; or a disk is broken.
            logger.warning("files stay on a node", extra={"error": str(error)})


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def _send(rpc: Rpc, path: Path) -> None:
    with path.open("rb") as file:
        while True:
            offset = file.tell()
            data = await asyncio.to_thread(file.read, _CHUNK_BYTES)
            # An empty file is a file too.
            if not data and offset:
                return
            _check(path, await rpc("podium_put_file", args=(str(path), offset, data)))
            if not data:
                return


def _check(path: Path, answers: list[str]) -> None:
    failures = [answer for answer in answers if answer]
    if failures:
        raise UnavailableError(
            f"{path.name} cannot be kept on every node: {failures[0]}", reason="NODE_FILES"
        )


class NodeFiles:
    """Part of vLLM's worker class; its answers are empty, or say what failed.

    A worker that raised would leave the answers of the others unread in vLLM's queues, for the next
    call to take as its own.
    """

    local_rank: int
    parallel_config: Any

    def podium_put_file(self, path: str, offset: int, data: bytes) -> str:
        """Writes a part of a file, in order."""
        if not self._podium_stores():
            return ""
        target = Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("ab" if offset else "wb") as file:
                if file.tell() != offset:
                    return f"node {self._podium_node()}: it has {file.tell()} bytes, not {offset}"
                file.write(data)
        except OSError as error:
            return f"node {self._podium_node()}: {error.strerror}"
        return ""

    def podium_remove_files(self, folder: str) -> str:
        """Removes a folder that `podium_put_file` made; nothing, where there is none."""
        if not self._podium_stores():
            return ""
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            return f"node {self._podium_node()}: {error.strerror}"
        return ""

    def _podium_node(self) -> int:
        return int(self.parallel_config.node_rank)

    def _podium_stores(self) -> bool:
        # Node 0's files are the leader's own.
        return self._podium_node() > 0 and self.local_rank == 0
