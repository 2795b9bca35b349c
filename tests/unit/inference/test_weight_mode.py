"""Every answer of the OpenAI API says how the pool holds policies."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import pytest
from podium.core.weight_modes import ADAPTER, MERGED, WEIGHT_MODE_HEADER
from podium_inference.adapters.http.weight_mode import TellsWeightMode

Message = MutableMapping[str, Any]


@pytest.mark.parametrize("mode", [ADAPTER, MERGED])
async def test_an_answer_has_the_header_beside_its_own(mode: str) -> None:
    sent: list[Message] = []

    async def app(scope: Message, receive: Any, send: Any) -> None:
        assert scope == {"type": "http"}
        own = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": own})
        await send({"type": "http.response.body", "body": b"{}"})

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    await TellsWeightMode(app, mode)({"type": "http"}, receive, send)
    start, body = sent
    assert start["headers"] == [
        (b"content-type", b"application/json"),
        (WEIGHT_MODE_HEADER.encode(), mode.encode()),
    ]
    assert body == {"type": "http.response.body", "body": b"{}"}
