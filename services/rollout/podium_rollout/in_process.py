"""Episodes in this process: what serves a rollout service without workers, and each worker."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from podium.chat import Transport, guard
from podium.kit.rpc import Server
from podium.rollout.v1 import rollout_service_pb2_grpc

from podium_rollout.adapters.environments import Environments
from podium_rollout.adapters.model_players import OpenAIPlayers
from podium_rollout.adapters.policy import InferencePolicy
from podium_rollout.domain.group import GroupRunner
from podium_rollout.servicer import SERVICE, RolloutServicer
from podium_rollout.settings import Settings

_OBJECTS_BETWEEN_COLLECTIONS = 10_000


@asynccontextmanager
async def episodes(server: Server, settings: Settings) -> AsyncIterator[None]:
    """Adds the servicer that runs them; what it holds is released when the block ends."""
    _look_here_last()
    environments = Environments(settings.environment_resume_seconds)
    policies = {
        name: InferencePolicy(
            address,
            generate_timeout_s=settings.generate_timeout_seconds,
            token=settings.peer_token(),
            tls=settings.tls(),
        )
        for name, address in settings.pool_addresses().items()
    }
    client = _client(settings)
    runner = GroupRunner(
        environments, policies, settings.max_groups, OpenAIPlayers(client, settings)
    )
    server.add(
        rollout_service_pb2_grpc.add_RolloutServiceServicer_to_server,
        RolloutServicer(runner, environments),
        SERVICE,
    )
    _look_less_for_garbage()
    try:
        yield
    finally:
        await environments.close()
        await asyncio.gather(*(policy.close() for policy in policies.values()), client.aclose())


def _client(settings: Settings) -> httpx.AsyncClient:
    """What asks the models that play beside the policy."""
    return httpx.AsyncClient(
        timeout=None,
        # As many connections as episodes ask: a bound would let some wait for others' answers.
        transport=Transport("player"),
        event_hooks={"request": [guard(settings.allowed_networks, "player")]},
    )


def _look_here_last() -> None:
    """Modules of users' environments lie where they started it, and must hide no others."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)


def _look_less_for_garbage() -> None:
    """A thousand episodes hold a million objects, which are no garbage and are looked through.

    What is loaded by now stays for good. Python's own threshold, 700, has all that lives looked
    at several times a second: a tenth of what a turn costs.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
