"""A policy that a request to the OpenAI API names is there before vLLM looks for it."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any

import httpx
import pytest
from podium.core.errors import (
    FailedPreconditionError,
    NotFoundError,
    PodiumError,
    UnavailableError,
)
from podium_inference.adapters.http.named_policies import NamedPolicies, Receive, Scope, Send
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


class Wanted:
    """What was asked of the pool, and how it fails."""

    def __init__(self) -> None:
        self.names: list[tuple[str, int | None]] = []
        self.error: PodiumError | None = None

    async def __call__(self, job: str, version: int | None) -> None:
        self.names.append((job, version))
        if self.error is not None:
            raise self.error


class NobodyMay:
    """Stands for vLLM's check of the key."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await JSONResponse({}, status_code=401)(scope, receive, send)


@pytest.fixture
def wanted() -> Wanted:
    return Wanted()


def application(wanted: Wanted, *, text_only: bool = False) -> Starlette:
    async def echo(request: Request) -> JSONResponse:
        return JSONResponse({"body": (await request.body()).decode("latin-1")})

    app = Starlette(routes=[Route("/v1/chat/completions", echo, methods=["POST", "GET"])])
    app.user_middleware.append(
        Middleware(NamedPolicies, want=wanted, base_model="base-model", text_only=text_only)
    )
    return app


async def post(app: Any, content: Any) -> httpx.Response:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://pool") as client:
        return await client.post("/v1/chat/completions", content=content)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("job-a@7", [("job-a", 7)]),
        ("job-a", [("job-a", None)]),
        ("base-model", []),
        ("org/Model", []),
        ("job-a@new", []),
        (7, []),
        (None, []),
    ],
)
async def test_names_of_policies_are_wanted_and_the_body_goes_on(
    wanted: Wanted, model: Any, names: list[tuple[str, int | None]]
) -> None:
    body = json.dumps({"model": model, "messages": ["x" * 100_000]})

    async def pieces() -> Any:
        for start in range(0, len(body), 10_000):
            yield body[start : start + 10_000].encode()

    response = await post(application(wanted), pieces())
    assert (response.status_code, response.json()["body"]) == (200, body)
    assert wanted.names == names


async def test_a_model_of_text_is_not_shown_an_image_and_the_refusal_names_it(
    wanted: Wanted,
) -> None:
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]
    body = json.dumps({"model": "job-a", "messages": [{"role": "user", "content": parts}]})
    response = await post(application(wanted, text_only=True), body)
    error = response.json()["error"]
    assert response.status_code == 400
    assert error["param"] == "messages[0].content[1].type"
    assert "got 'image_url'; the model reads text alone" in error["message"]
    assert error["code"] == "INVALID_ARGUMENT"
    # Nothing is fetched for it; and a model with eyes has its own server judge.
    assert wanted.names == []
    assert (await post(application(wanted), body)).json()["body"] == body


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
async def test_what_is_no_request_is_left_to_the_server(wanted: Wanted, content: bytes) -> None:
    response = await post(application(wanted), content)
    assert response.json()["body"].encode("latin-1") == content
    assert wanted.names == []


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UnavailableError("the registry is away", reason="AWAY"), 503, "AWAY"),
        (FailedPreconditionError("other base", reason="BASE_MODEL_MISMATCH"), 400, None),
    ],
)
async def test_what_cannot_be_fetched_is_told_as_the_api_tells_it(
    wanted: Wanted, error: PodiumError, status: int, code: str | None
) -> None:
    wanted.error = error
    response = await post(application(wanted), json.dumps({"model": "job"}))
    assert response.status_code == status
    told: MutableMapping[str, Any] = response.json()["error"]
    assert told["message"] == error.message
    assert told["code"] == (code or error.reason)


async def test_a_policy_that_there_is_not_is_left_to_the_server(wanted: Wanted) -> None:
    wanted.error = NotFoundError("no such", reason="POLICY_NOT_LOADED")
    response = await post(application(wanted), json.dumps({"model": "job"}))
    assert response.status_code == 200


async def test_who_may_not_call_has_nothing_fetched(wanted: Wanted) -> None:
    app = application(wanted)
    app.add_middleware(NobodyMay)
    response = await post(app, json.dumps({"model": "job"}))
    assert response.status_code == 401
    assert wanted.names == []
