"""A node of an engine other than its first: vLLM's workers of this node, without an API.

It lives as long as the leader and the other nodes do. Its health says that it is there once the
whole engine is; it serves nothing else, and has no need of the registry.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import multiprocessing
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from podium.kit.rpc import Server, run_service
from podium.local import models

from podium_inference.adapters.engine_options import engine_options, for_this_device, traits
from podium_inference.adapters.node_group import Member, NodePlace, in_thread
from podium_inference.settings import Settings

logger = logging.getLogger(__name__)


def run(given: Settings) -> None:
    """Works until the leader ends; status 1 unless the leader said so, or this node was told to."""

    @asynccontextmanager
    async def build(server: Server) -> AsyncIterator[None]:
        settings = for_this_device(given)
        folder = models.resolve(settings.model)
        digest = await asyncio.to_thread(models.digest, folder)
        shutil.rmtree(settings.data_dir / "policies", ignore_errors=True)
        options = engine_options(settings, folder)
        member = Member(settings.node_rank, traits(settings, options, digest))
        port = await in_thread(
            functools.partial(
                member.join,
                settings.leader_address,
                settings.group_port,
                settings.group_timeout_seconds,
            )
        )
        place = NodePlace(settings.node_rank, settings.nodes, settings.leader_address, port)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def leader_ended(said: bool) -> None:
            if not said:
                _end("the leader has gone; ending")
            loop.call_soon_threadsafe(ended.set)
            loop.call_soon_threadsafe(server.request_stop)

        member.watch(leader_ended)
        executor = _start(settings, folder, place)
        executor.register_failure_callback(
            lambda: None if ended.is_set() else _end("a worker of the engine has died; ending")
        )
        try:
            yield
            if not ended.is_set():
                logger.info("telling the leader that this node must end")
                member.leave()
                # The leader lets its running calls end; run_service bounds how long this takes.
                await ended.wait()
        finally:
            _kill_workers()
            executor.shutdown()

    run_service("inference", given, build)


def _start(settings: Settings, model: Path, place: NodePlace) -> Any:
    """vLLM's executor of this node, when the engine is whole. Blocking.

    Raises:
        RuntimeError: the engine cannot start.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.executor.multiproc_executor import MultiprocExecutor

    options = engine_options(settings, model, place)
    # The leader's defaults.
    context = UsageContext.OPENAI_API_SERVER
    config = AsyncEngineArgs(**options).create_engine_config(context, headless=True)
    return MultiprocExecutor(config)


def _kill_workers() -> None:
    """Of vLLM: they wait for the leader's next call, and do not hear of this process's end."""
    for child in multiprocessing.active_children():
        child.kill()


def _end(why: str) -> None:
    # What runs in vLLM cannot be waited for: it waits for the others, and they are gone.
    logger.error(why)
    _kill_workers()
    os._exit(1)
