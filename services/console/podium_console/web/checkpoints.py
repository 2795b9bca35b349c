"""Checkpoints, pools, and a chat with any of the policies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from podium.core.errors import DeadlineExceededError, FailedPreconditionError, NotFoundError
from podium.core.policy_names import resolve_policy
from podium.kit.rpc import rpc_errors
from podium.registry.v1 import registry_service_pb2 as pb
from podium.types.v1 import policy_pb2, trajectory_pb2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from podium_console.adapters import chat
from podium_console.domain import views
from podium_console.web import arguments, replies
from podium_console.web.arguments import installation

_MODELS, _MOST_MODELS = 100, 500
_VERSIONS, _MOST_VERSIONS = 50, 100
_ANCESTORS = 500
_MESSAGES, _TEXT = 200, 200_000
_ROLES = {
    "system": trajectory_pb2.ROLE_SYSTEM,
    "user": trajectory_pb2.ROLE_USER,
    "assistant": trajectory_pb2.ROLE_ASSISTANT,
}


async def list_models(request: Request) -> Response:
    """A page of models, by name."""
    message = pb.ListModelsRequest(
        page_size=arguments.size(request, _MODELS, _MOST_MODELS),
        page_token=request.query_params.get("after", ""),
    )
    with rpc_errors("registry"):
        found = await installation(request).registry_stub.ListModels(message)
    rows = [
        {"name": each.name, "latest": each.latest_version, "versions": each.version_count}
        for each in found.models
    ]
    return JSONResponse({"models": rows, "next": found.next_page_token})


async def list_versions(request: Request) -> Response:
    """A page of a model's versions, newest first."""
    message = pb.ListVersionsRequest(
        model=request.path_params["model"],
        page_size=arguments.size(request, _VERSIONS, _MOST_VERSIONS),
        page_token=request.query_params.get("after", ""),
    )
    with rpc_errors("registry"):
        found = await installation(request).registry_stub.ListVersions(message)
    rows = [views.version(each) for each in found.versions]
    return JSONResponse({"versions": rows, "next": found.next_page_token})


async def get_lineage(request: Request) -> Response:
    """What a version came from, nearest first."""
    model = request.path_params["model"]
    version = arguments.whole_number("version", request.path_params["version"], 0, 2**63 - 1) or 0
    message = pb.GetLineageRequest(model=model, version=version, limit=_ANCESTORS)
    with rpc_errors("registry"):
        found = await installation(request).registry_stub.GetLineage(message)
    return JSONResponse({"ancestors": [views.ref(each) for each in found.ancestors]})


async def get_alias(request: Request) -> Response:
    """The version that an alias points at; None where it points nowhere."""
    message = pb.GetVersionRequest(
        model=request.path_params["model"], alias=request.path_params["alias"]
    )
    try:
        with rpc_errors("registry"):
            found = await installation(request).registry_stub.GetVersion(message)
    except NotFoundError:
        return JSONResponse({"version": None})
    return JSONResponse({"version": found.version.manifest.version})


async def set_alias(request: Request) -> Response:
    """Points an alias at a `version`, if it still points where who asks saw it: `expected`."""
    body = await arguments.body(request)
    expected = body.get("expected")
    message = pb.SetAliasRequest(
        model=request.path_params["model"],
        alias=request.path_params["alias"],
        version=_version(body, "version"),
        expected_version=-1 if expected is None else _version(body, "expected"),
    )
    with rpc_errors("registry"):
        found = await installation(request).registry_stub.SetAlias(message)
    return JSONResponse(views.version(found.version))


async def list_pools(request: Request) -> Response:
    """Every pool with what it serves."""
    here = installation(request)
    states = await asyncio.gather(*map(here.pool_state, here.pools))
    return JSONResponse({"pools": [state.plain() for state in states]})


async def load_policy(request: Request) -> Response:
    """Has a pool serve a policy, so that one can talk to it."""
    body = await arguments.body(request)
    here = installation(request)
    policy, pool = await _policy(request, body)
    version = policy.version if policy.HasField("version") else None
    within = arguments.settings(request).load_seconds
    return JSONResponse(await chat.load(here, pool, policy.job, version, within))


async def talk(request: Request) -> Response:
    """The answer to a conversation, piece by piece, one JSON object a line."""
    body = await arguments.body(request)
    here = installation(request)
    messages = _conversation(body.get("messages"))
    sampling = policy_pb2.SamplingParams(
        temperature=arguments.number(body, "temperature", 0.7, 0, 5),
        max_tokens=int(arguments.number(body, "max_tokens", 256, 1, 131072)),
    )
    policy, pool = await _policy(request, body)
    version = policy.version if policy.HasField("version") else None
    if not await chat.is_served(here, pool, policy.job, version):
        raise FailedPreconditionError(
            f"the pool {pool} does not serve this policy now; it can be loaded",
            reason="NOT_SERVED",
            metadata={"pool": pool},
        )
    pieces = here.policies(pool).stream_chat(messages, policy=policy, sampling=sampling)
    within = arguments.settings(request).chat_seconds

    async def messages_of() -> AsyncIterator[dict[str, Any]]:
        try:
            async with asyncio.timeout(within), aclosing(pieces):
                async for piece in pieces:
                    yield _piece(piece)
        except TimeoutError:
            raise DeadlineExceededError(f"no whole answer in {within:g} seconds") from None

    return await replies.lines(messages_of())


async def _policy(request: Request, body: dict[str, Any]) -> tuple[policy_pb2.PolicyRef, str]:
    """Which policy is meant, and the pool for it."""
    here = installation(request)
    name = arguments.text(body, "policy", 200)
    policy = await resolve_policy(name, here.checkpoints.get)
    wanted, base_model = arguments.text(body, "pool", 63), ""
    if policy.job and not wanted and len(here.pools) > 1:
        version: int | str = policy.version if policy.HasField("version") else "latest"
        base_model = (await here.checkpoints.get(policy.job, version)).manifest.base_model
    return policy, await chat.choose_pool(here, base_model, wanted)


def _version(body: dict[str, Any], name: str) -> int:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise arguments.wrong(name, f"got {str(value)[:40]!r}; allowed are versions, from 0")
    return value


def _conversation(found: Any) -> list[trajectory_pb2.Message]:
    if not isinstance(found, list) or not 0 < len(found) <= _MESSAGES:
        raise arguments.wrong("messages", f"must be a list of 1 to {_MESSAGES} messages")
    messages = []
    for at, each in enumerate(found):
        role = each.get("role") if isinstance(each, dict) else None
        if not isinstance(role, str) or role not in _ROLES:
            raise arguments.wrong(
                f"messages[{at}].role", f"got {str(role)[:40]!r}; allowed are {', '.join(_ROLES)}"
            )
        content = arguments.text(each, "content", _TEXT)
        messages.append(trajectory_pb2.Message(role=_ROLES[role], content=content))
    return messages


def _piece(piece: Any) -> dict[str, Any]:
    last = piece.delta.finish_reason
    plain: dict[str, Any] = {"text": piece.delta.text}
    if last:
        plain["finish_reason"] = (
            trajectory_pb2.FinishReason.Name(last).removeprefix("FINISH_REASON_").lower()
        )
    if piece.message.tool_calls:
        plain["calls"] = [
            {"name": call.name, "arguments": call.arguments_json}
            for call in piece.message.tool_calls
        ]
    return plain
