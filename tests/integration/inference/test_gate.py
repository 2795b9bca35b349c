"""The door of the HTTP API before vLLM's own application, with all the routes that it has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from podium.core.errors import FailedPreconditionError
from podium.core.rollout_keys import signed
from podium_inference.adapters.http.capture import asked
from podium_inference.adapters.http.gate import OPEN, ROUTES, Gate
from podium_inference.adapters.http.keys import Keys
from podium_inference.adapters.http.openai_api import build, take_api_key
from podium_inference.settings import Settings
from starlette.routing import BaseRoute, Mount, WebSocketRoute

KEY = "podium-rollout-one"
CHAT = "/v1/chat/completions"
# What vLLM 0.32 answered without a key, of which one can be abused each in its way.
KNOWN = {
    "/invocations",
    "/tokenize",
    "/detokenize",
    "/generative_scoring",
    "/scale_elastic_ep",
    "/load",
    "/metrics",
    "/inference/v1/generate",
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Two tokens that open gRPC too, and one key of agents."""
    tokens, api_keys = tmp_path / "tokens", tmp_path / "api-key"
    tokens.write_text("the-token\nanother\n")
    api_keys.write_text("of-agents\n")
    return tokens, api_keys


async def _inner(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the key under which the call is captured."""
    request = asked()
    body = b"" if request is None else request.key.encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


async def _call(
    keys: Keys, headers: dict[str, str], method: str = "POST", path: str = CHAT, app: Any = _inner
) -> httpx.Response:
    transport = httpx.ASGITransport(Gate(app, keys))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        return await client.request(method, path, headers=headers)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def real_app() -> Any:
    """vLLM's application as this service builds it, for an engine that can do everything."""
    patch = pytest.MonkeyPatch()
    root = logging.getLogger()
    level = root.level
    patch.setenv("VLLM_API_KEY", "of-the-variable")
    patch.setenv("VLLM_SERVER_DEV_MODE", "1")  # the worst that an operator may set
    try:
        assert take_api_key() == "of-the-variable"
        tasks = ("generate", "render", "transcription", "realtime")
        app, _ = build(Settings(model="tiny"), "tiny", tasks, None)
    finally:
        patch.undo()
        # Something that vLLM imports raises it, and other tests read warnings.
        root.setLevel(level)
    return app


def _asked(routes: list[BaseRoute], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Method and a path that matches, of every route."""
    for route in routes:
        path = prefix + route.path  # type: ignore[attr-defined]
        if isinstance(route, Mount):
            yield from _asked(list(route.routes or []), path) if route.routes else ()
            yield "GET", path
            yield "POST", f"{path}/below"
        elif not isinstance(route, WebSocketRoute):
            for method in sorted(route.methods):  # type: ignore[attr-defined]
                yield method, path.replace("{response_id}", "resp_1")


async def test_every_route_of_the_real_app_asks_for_a_key(
    real_app: Any, files: tuple[Path, Path]
) -> None:
    found = list(_asked(real_app.routes))
    assert {path for _, path in found} >= KNOWN | {"/sleep", "/collective_rpc"}
    keys = Keys.of(*files)
    allowed = {(method, path.replace("{id}", "resp_1")) for method, path in ROUTES}
    for method, path in found:
        if (method, path) not in OPEN:
            for wrong in ({}, bearer("nobody's"), {"x-api-key": "nobody's"}, bearer(KEY)):
                answer = await _call(keys, wrong, method, path, real_app)
                assert answer.status_code == 401, (method, path, wrong)
        answer = await _call(keys, bearer("the-token"), method, path)
        here = (method, path) in allowed | OPEN
        assert answer.status_code == (200 if here else 404), (method, path)
    # Nothing on the list is there no more, or spelt otherwise.
    assert allowed | OPEN <= set(found)


@pytest.mark.parametrize("path", ["/health/", "//health", "/v1/models/", "/v1//models", "/v1", "/"])
async def test_other_spellings_of_a_route_are_no_way_in(
    path: str, files: tuple[Path, Path]
) -> None:
    assert (await _call(Keys.of(*files), {}, "GET", path)).status_code == 401
    assert (await _call(Keys.of(*files), bearer("the-token"), "GET", path)).status_code == 404


async def test_without_any_key_routes_that_are_not_listed_are_not_there_either() -> None:
    assert (await _call(Keys(), {}, "POST", "/scale_elastic_ep")).status_code == 404
    assert (await _call(Keys(), {})).status_code == 200


async def test_a_websocket_is_refused(files: tuple[Path, Path]) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/v1/realtime", "headers": []}
    await Gate(_inner, Keys.of(*files))(scope, lambda: asyncio.sleep(0), send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_nothing_of_a_body_is_read_before_a_key_was_shown(files: tuple[Path, Path]) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("the body was read")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": CHAT, "headers": []}
    await Gate(_inner, Keys.of(*files))(scope, receive, send)
    assert sent[0]["status"] == 401


@pytest.mark.parametrize("key", ["the-token", "another", "of-agents", "of-the-variable"])
@pytest.mark.parametrize("header", ["Authorization", "x-api-key"])
async def test_every_token_and_key_is_taken_by_either_header(
    key: str, header: str, files: tuple[Path, Path]
) -> None:
    keys = Keys.of(*files, "of-the-variable")
    shown = bearer(key) if header == "Authorization" else {header: key}
    answer = await _call(keys, shown)
    assert (answer.status_code, answer.text) == (200, "")


@pytest.mark.parametrize(
    ("key", "status"),
    [
        (signed(KEY, "the-token"), 200),
        (signed(KEY, "another"), 200),
        (signed(KEY, "of-agents"), 200),
        (KEY, 401),
        (signed(KEY, "no-token"), 401),
        (signed("podium-rollout-two", "the-token").replace("two", "one"), 401),
    ],
)
@pytest.mark.parametrize("header", ["Authorization", "x-api-key"])
async def test_where_a_token_is_asked_for_a_rollout_s_key_bears_its_signature(
    key: str, status: int, header: str, files: tuple[Path, Path]
) -> None:
    shown = bearer(key) if header == "Authorization" else {header: key}
    answer = await _call(Keys.of(*files), shown)
    assert answer.status_code == status
    if status == 200:
        assert answer.text == KEY
    else:
        error = answer.json()
        assert (error["type"], "signature" in error["error"]["message"]) == ("error", True)


async def test_a_rollout_s_key_is_not_lost_beside_a_token(files: tuple[Path, Path]) -> None:
    both = {**bearer("the-token"), "x-api-key": signed(KEY, "the-token")}
    assert (await _call(Keys.of(*files), both)).text == KEY


@pytest.mark.parametrize("key", [KEY, signed(KEY, "some-token")])
async def test_where_none_is_asked_for_any_key_is_a_rollout_s(key: str) -> None:
    assert (await _call(Keys(), bearer(key))).text == KEY
    assert (await _call(Keys(), {"x-api-key": key})).text == KEY


async def test_keys_are_exchanged_while_it_serves(files: tuple[Path, Path]) -> None:
    keys = Keys.of(*files)
    files[0].write_text("the-newest-token\n")
    files[1].unlink()
    for key, status in (("the-newest-token", 200), ("the-token", 401), ("of-agents", 401)):
        assert (await _call(keys, bearer(key))).status_code == status


def test_a_missing_file_of_keys_opens_nothing(files: tuple[Path, Path], tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert not Keys.of(files[0], missing).admit([])
    with pytest.raises(FailedPreconditionError):
        Keys.of(None, missing)
