"""`python -m podium_inference`: the inference service."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from podium.core.chat_templates import digest_of
from podium.core.reasoning_formats import SPECIAL_SIGNS
from podium.core.tool_formats import SPECIAL
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.kit.registry_client import RegistryClient
from podium.kit.rpc import Server, connect_peer, load_settings, run_service
from podium.kit.rpc.members import Members
from podium.local import models
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_inference.adapters import node_worker
from podium_inference.adapters.engine import VllmEngine
from podium_inference.adapters.engine_options import engine_options, for_this_device, traits
from podium_inference.adapters.fetcher import RegistryFetcher
from podium_inference.adapters.http.keys import Keys
from podium_inference.adapters.http.openai_api import OpenAiApi, take_api_key
from podium_inference.adapters.node_group import Leader, NodePlace
from podium_inference.adapters.pool_peers import PoolPeers, join
from podium_inference.adapters.quick_tokenizer import quick
from podium_inference.domain.captures import Captures
from podium_inference.domain.holders import Holders
from podium_inference.domain.pool import PolicyPool
from podium_inference.domain.render import NO_TEMPLATE, Renderer
from podium_inference.domain.token_scores import vocabulary_digest
from podium_inference.servicer import InferenceServicer
from podium_inference.settings import Settings

logger = logging.getLogger(__name__)

_WATCH_SECONDS = 0.5
_LAST_ANSWERS_SECONDS = 2.0


def main() -> None:
    """Serves until SIGTERM or SIGINT; ends with status 1 when the engine dies, on any node."""
    given = load_settings(Settings)
    if given.node_rank > 0:
        node_worker.run(given)
    api_key = take_api_key()

    @asynccontextmanager
    async def build(server: Server) -> AsyncIterator[None]:
        settings = for_this_device(given)
        keys = Keys.of(settings.auth_tokens_file, settings.api_keys_file, api_key)
        folder = models.resolve(settings.model)
        models.check_whole(folder)
        digest = await asyncio.to_thread(models.digest, folder)
        leader = _lead(settings, folder, digest, server)
        place = await _gather(settings, leader) if leader is not None else None
        engine = VllmEngine(settings, folder, place)
        await engine.prepare()
        registry = RegistryClient(
            settings.registry_address, token=settings.peer_token(), tls=settings.tls()
        )
        holder = f"inference/{socket.gethostname()}/{os.getpid()}"

        def lease(job: str, version: int) -> AbstractAsyncContextManager[None]:
            return registry.lease(job, version, holder)

        captures = Captures(
            settings.capture_max_calls, settings.capture_max_tokens, settings.capture_seconds
        )
        members = _members(settings)
        holders = Holders()
        pool_peers = PoolPeers(members, settings.pod_ip, holders)
        api = OpenAiApi(settings, keys, captures, pool_peers.announce)
        merged = settings.weight_mode == "merged"
        fetcher = RegistryFetcher(
            registry,
            lease,
            engine.check,
            engine.spread,
            merged=merged,
            base_digest=digest,
            folder=settings.data_dir.absolute() / "policies",
        )
        pool = PolicyPool(
            engine,
            registry,
            fetcher,
            merged=merged,
            max_requests=engine.max_num_seqs + settings.max_waiting,
            load_timeout_s=settings.load_timeout_seconds,
            on_change=api.update,
        )
        renderer = Renderer(
            quick(engine.tokenizer),
            "" if settings.tool_format == "auto" else settings.tool_format,
            settings.chat_template,
            settings.reasoning_parser,
        )
        if not renderer.has_template:
            logger.warning(NO_TEMPLATE)
        if settings.chat_template:
            # A template that cannot be read is an operator's mistake, not a request's.
            asked = trajectory_pb2.Message(role=trajectory_pb2.ROLE_USER, content="?")
            renderer.first([asked], (), "")
        description = pb.GetEngineResponse(
            base_model=settings.model,
            base_model_digest=digest,
            max_model_len=engine.max_model_len,
            weight_mode=(pb.WEIGHT_MODE_MERGED if pool.merged else pb.WEIGHT_MODE_ADAPTER),
            max_lora_rank=0 if pool.merged else settings.max_lora_rank,
            http_port=settings.http_port,
            dtype=engine.dtype,
            vocab_size=engine.vocab_size,
            gpus=engine.gpus,
            vocabulary_digest=vocabulary_digest(engine.tokenizer.get_vocab()),
            untrainable=models.untrainable(folder, models.causal_kinds()),
            unrenderable="" if renderer.has_template else NO_TEMPLATE,
            rendering=spec_pb2.Rendering(
                chat_template_digest=digest_of(
                    settings.chat_template or getattr(engine.tokenizer, "chat_template", None)
                ),
                reasoning_parser=settings.reasoning_parser,
                tool_format=renderer.call_format,
            ),
        )
        engine.keep_special_tokens = (
            renderer.call_format in SPECIAL or settings.reasoning_parser in SPECIAL_SIGNS
        )
        server.add(
            pb_grpc.add_InferenceServiceServicer_to_server,
            InferenceServicer(
                engine,
                pool,
                renderer,
                captures,
                pool_peers,
                holders,
                description,
                lambda: engine.load.said,
            ),
            "podium.inference.v1.InferenceService",
        )
        watch = asyncio.create_task(_end_with_engine(engine, server))
        try:
            async with api.run(
                engine,
                pool,
                call_format=renderer.call_format,
                shows_tools=renderer.shows_tools,
            ):
                # Before it is ready: the first request for a job need not wait.
                await join(pool, pool_peers, settings.load_timeout_seconds)
                yield
        finally:
            watch.cancel()
            if members is not None:
                await members.close()
            await pool.close()
            await registry.close()
            if leader is not None:
                leader.dismiss()
            engine.close()

    run_service("inference", given, build)


def _lead(settings: Settings, folder: Path, digest: str, server: Server) -> Leader | None:
    """Takes the other nodes of this engine, where there are any."""
    if settings.nodes == 1:
        return None
    loop = asyncio.get_running_loop()

    def lost(rank: int) -> None:
        # What runs in vLLM waits for that node, and would for as long as its timeouts are.
        logger.error("node %d has gone; ending", rank)
        os._exit(1)

    def leaving(rank: int) -> None:
        logger.info("node %d must end; stopping", rank)
        loop.call_soon_threadsafe(server.request_stop)

    common = traits(settings, engine_options(settings, folder), digest)
    leader = Leader(settings.nodes, common, on_lost=lost, on_leaving=leaving)
    leader.listen(settings.host, settings.group_port)
    return leader


async def _gather(settings: Settings, leader: Leader) -> NodePlace:
    """When all nodes have come."""
    from vllm.utils.network_utils import get_open_port

    port = await leader.gather(settings.group_timeout_seconds, get_open_port)
    return NodePlace(0, settings.nodes, settings.pod_ip or settings.leader_address, port)


def _members(settings: Settings) -> Members | None:
    """The pool's pods, where its name is known."""
    if not settings.pool_address:
        return None
    return Members(settings.pool_address, functools.partial(connect_peer, settings))


async def _end_with_engine(engine: VllmEngine, server: Server) -> None:
    """A dead engine does not come back: tell callers, then let the supervisor start anew."""
    while not engine.dead:  # noqa: ASYNC110 - vLLM has no event for it
        await asyncio.sleep(_WATCH_SECONDS)
    logger.error("the engine has died; ending")
    server.set_serving(False)
    await asyncio.sleep(_LAST_ANSWERS_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
