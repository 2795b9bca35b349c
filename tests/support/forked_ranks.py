"""Processes that train together, forked by a program that has imported what they need.

The program may have no threads, and so computes nothing itself.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist
from podium_trainer.learner.parallel import join, leave

_SECONDS = 300
"""That processes wait for each other on a busy machine."""

_fork = multiprocessing.get_context("fork")


def forked(size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `work(ranks, *arguments)` returns in each of `size` processes, by rank.

    Raises:
        RuntimeError: one of them failed; the others are ended.
    """
    results: dict[int, Any] = {}
    with ExitStack() as stack:
        port = stack.enter_context(_process(_store)).recv()
        pipes = {
            stack.enter_context(_process(_rank, rank, size, port, work, arguments)): rank
            for rank in range(size)
        }
        while pipes:
            for pipe in [each for each in wait(list(pipes)) if isinstance(each, Connection)]:
                rank = pipes.pop(pipe)
                try:
                    results[rank], failure = pipe.recv()
                except EOFError:
                    failure = "it is gone"
                if failure:
                    raise RuntimeError(f"process {rank} of {size}: {failure}")
    return [results[rank] for rank in range(size)]


@contextmanager
def _process(target: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    ours, theirs = _fork.Pipe()
    process = _fork.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    # So that the end of the process is the end of the pipe.
    theirs.close()
    try:
        yield ours
    finally:
        process.kill()
        process.join()


def _store(pipe: Connection) -> None:
    """Where they meet, in place of torchrun's: its threads are in no process that forks."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipe.send(store.port)
    with suppress(EOFError):
        pipe.recv()


def _rank(
    pipe: Connection, rank: int, size: int, port: int, work: Callable[..., Any], arguments: Any
) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    torch.set_num_threads(1)
    try:
        result = work(join(_SECONDS), *arguments)
        leave()
        pipe.send((result, ""))
    except BaseException:
        pipe.send((None, traceback.format_exc()))
