"""A rollout's key before vLLM's own check of keys."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from podium.core.rollout_keys import signed
from podium_inference.capture import RolloutKeys, asked
from vllm.entrypoints.serve.middleware.authenticate import AuthenticationMiddleware

KEY = "podium-rollout-one"


async def _inner(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the key under which the call is captured."""
    request = asked()
    body = b"" if request is None else request.key.encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


async def _call(bearer: str, token: str) -> tuple[int, str]:
    app = AuthenticationMiddleware(_inner, [token]) if token else _inner
    transport = httpx.ASGITransport(RolloutKeys(app, token))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        headers = {"Authorization": f"Bearer {bearer}"}
        answer = await client.post("/v1/chat/completions", headers=headers)
    return answer.status_code, answer.text


@pytest.mark.parametrize(
    ("bearer", "status"),
    [
        (signed(KEY, "the-token"), 200),
        (KEY, 401),
        (signed(KEY, "another-token"), 401),
        (signed("podium-rollout-two", "the-token").replace("two", "one"), 401),
    ],
)
async def test_where_a_token_is_asked_for_a_rollout_s_key_bears_its_signature(
    bearer: str, status: int
) -> None:
    answered, body = await _call(bearer, "the-token")
    assert answered == status
    assert status != 200 or body == KEY


async def test_the_token_itself_belongs_to_no_rollout() -> None:
    assert await _call("the-token", "the-token") == (200, "")


@pytest.mark.parametrize("bearer", [KEY, signed(KEY, "some-token")])
async def test_where_none_is_asked_for_any_key_is_a_rollout_s(bearer: str) -> None:
    assert await _call(bearer, "") == (200, KEY)
