"""Tools that a rollout offers, and that the model's template does not show, are warned of once."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from podium_inference.adapters.http.capture import CapturedRequest, in_request
from podium_inference.adapters.http.openai_api import HIDDEN_TOOLS, GatedClient
from podium_inference.domain.captures import Captures
from support.sampling_params import Params

TOOLS = [{"type": "function", "function": {"name": "look"}}]


class Pool:
    """Holds the base model alone."""

    merged = False

    @asynccontextmanager
    async def use(self, job: str, version: int | None, *, moves: bool = True) -> AsyncIterator[Any]:
        yield SimpleNamespace(job=job, version=0, adapter=None)


class Engine:
    """Says nothing."""

    async def generate(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        for output in ():
            yield output


async def announce(key: str) -> None:
    """Tells nobody."""


def client(*, shows_tools: bool) -> GatedClient:
    engine: Any = SimpleNamespace(llm=Engine())
    pool: Any = Pool()
    kept = Captures(max_calls=8, max_tokens=8, max_seconds=8)
    return GatedClient(engine, pool, kept, announce, "hermes", "", shows_tools=shows_tools)


async def ask(of: GatedClient, **fields: Any) -> None:
    body = bytearray(json.dumps({"messages": [], **fields}).encode())
    with in_request(CapturedRequest("key", path="/v1/chat/completions", body=body)):
        params = Params(structured_outputs=None)
        assert [output async for output in of.generate("p", params, "r")] == []


async def test_it_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        hides = client(shows_tools=False)
        await ask(hides)
        assert HIDDEN_TOOLS not in caplog.messages
        await ask(hides, tools=TOOLS)
        await ask(hides, tools=TOOLS)
    assert caplog.messages.count(HIDDEN_TOOLS) == 1


async def test_a_template_that_shows_them_is_not(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await ask(client(shows_tools=True), tools=TOOLS)
    assert HIDDEN_TOOLS not in caplog.messages
