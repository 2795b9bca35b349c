"""Who may call the real engine over HTTP in a stack with `auth`, and under which key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from podium.core.rollout_keys import new_key, signed
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.kit.rpc import connect
from podium.local.launcher import Launcher
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.registry.v1 import registry_service_pb2_grpc as registry_grpc
from podium.types.v1 import trajectory_pb2
from support.pool import OF_THE_VARIABLE, TinyPool

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.timeout(600),
]

# What vLLM 0.32 answers without a key, on its own.
UNLISTED = (
    ("POST", "/invocations"),
    ("POST", "/generative_scoring"),
    ("POST", "/scale_elastic_ep"),
    ("POST", "/is_scaling_elastic_ep"),
    ("POST", "/inference/v1/generate"),
    ("POST", "/v1/chat/completions/render"),
    ("POST", "/ping"),
    ("GET", "/load"),
    ("GET", "/metrics"),
    ("GET", "/version"),
)
LISTED = (("GET", "/v1/models"), ("POST", "/tokenize"), ("POST", "/v1/chat/completions"))


@pytest.fixture
def stack(shared: TinyPool) -> Launcher:
    return shared.stack


def secret(stack: Launcher, name: str) -> str:
    return (stack.data_dir / name).read_text().strip()


def mode(path: Path) -> int:
    """Who may read a file."""
    return path.stat().st_mode


def body(stack: Launcher) -> dict[str, Any]:
    return {
        "model": stack.config.model,
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 2,
    }


async def answered(stack: Launcher, method: str, path: str, key: str = "") -> int:
    root = stack.openai_base_url.removesuffix("/v1")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(base_url=root, timeout=120) as client:
        json_body = body(stack) if method == "POST" else None
        answer = await client.request(method, path, json=json_body, headers=headers)
    return answer.status_code


async def test_without_a_key_nothing_but_liveness_answers(stack: Launcher) -> None:
    for method, path in (*LISTED, *UNLISTED):
        assert await answered(stack, method, path) == 401, path
    assert await answered(stack, "GET", "/health") == 200


async def test_who_has_a_key_finds_the_listed_routes_alone(stack: Launcher) -> None:
    for key in (secret(stack, "token"), secret(stack, "api-key"), OF_THE_VARIABLE):
        for method, path in LISTED:
            assert await answered(stack, method, path, key) == 200, path
    for method, path in UNLISTED:
        assert await answered(stack, method, path, secret(stack, "token")) == 404, path


async def test_the_agents_key_opens_http_alone(stack: Launcher) -> None:
    key = secret(stack, "api-key")
    async with openai.AsyncOpenAI(base_url=stack.openai_base_url, api_key=key) as client:
        assert (await client.chat.completions.create(**body(stack))).choices
    for service, call in (
        ("registry", lambda c: registry_grpc.RegistryServiceStub(c).ListModels),
        ("inference", lambda c: pb_grpc.InferenceServiceStub(c).GetEngine),
    ):
        request: Any = (
            registry_pb.ListModelsRequest() if service == "registry" else pb.GetEngineRequest()
        )
        async with connect(stack.address(service), token=secret(stack, "token")) as channel:
            await call(channel)(request)
        async with connect(stack.address(service), token=key) as channel:
            with pytest.raises(Exception, match="UNAUTHENTICATED"):
                await call(channel)(request)


async def test_keys_that_are_added_while_it_runs_are_taken(stack: Launcher) -> None:
    agents = stack.data_dir / "api-key"
    assert await answered(stack, "GET", "/v1/models", "for-another-agent") == 401
    agents.write_text(f"{secret(stack, 'api-key')}\nfor-another-agent\n")
    try:
        assert await answered(stack, "GET", "/v1/models", "for-another-agent") == 200
    finally:
        agents.write_text(agents.read_text().splitlines()[0] + "\n")


async def test_anthropic_s_client_under_a_rollout_s_key_is_captured(stack: Launcher) -> None:
    key, token = new_key(), secret(stack, "token")
    tool = {"name": "look", "description": "See.", "input_schema": {"type": "object"}}
    root = stack.openai_base_url.removesuffix("/v1")
    options: dict[str, Any] = {
        "model": stack.config.model,
        "max_tokens": 3,
        "system": "Be brief.",
        "tools": [tool],
        "messages": [
            {"role": "user", "content": "Look."},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a door"}],
            },
        ],
    }
    async with anthropic.AsyncAnthropic(base_url=root, api_key=signed(key, token)) as client:
        whole = await client.messages.create(**options)
        async with client.messages.stream(**options) as stream:
            await stream.get_final_message()
    async with connect(stack.address("inference"), token=token) as channel:
        taken = pb_grpc.InferenceServiceStub(channel).TakeCapture(pb.TakeCaptureRequest(key=key))
        calls = [response.call async for response in taken]
    assert len(calls) == 2
    for call in calls:
        roles = [message.role for message in call.messages]
        assert roles == [
            trajectory_pb2.ROLE_SYSTEM,
            trajectory_pb2.ROLE_USER,
            trajectory_pb2.ROLE_ASSISTANT,
            trajectory_pb2.ROLE_TOOL,
        ]
        assert json.loads(call.messages[2].tool_calls[0].arguments_json) == {}
        assert (call.messages[3].content, call.messages[3].tool_call_id) == ("a door", "c1")
        assert [found.name for found in call.tools] == ["look"]
        assert len(call.generation.token_ids) == len(call.generation.logprobs) == 3
        assert call.untrainable == ""
    assert whole.usage.output_tokens == 3


async def test_a_key_without_its_signature_is_refused_in_words(stack: Launcher) -> None:
    root = stack.openai_base_url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=root, api_key=new_key(), max_retries=0) as client:
        with pytest.raises(anthropic.AuthenticationError, match="signature"):
            await client.messages.create(
                model=stack.config.model,
                max_tokens=1,
                messages=[{"role": "user", "content": "Hello"}],
            )


async def test_the_launcher_keeps_both_secrets_to_their_owner(stack: Launcher) -> None:
    for name in ("token", "api-key"):
        assert mode(stack.data_dir / name) & 0o077 == 0
    assert secret(stack, "token") != secret(stack, "api-key")
