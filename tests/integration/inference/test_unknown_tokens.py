"""A prompt with a token that the tokenizer knows and the model does not, through the OpenAI API."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from podium_inference.adapters.http.openai_api import GatedClient
from podium_inference.domain.captures import Captures

LAST = 262143


class Llm:
    """Takes whatever comes to it."""

    async def generate(self, prompt: Any, *_: Any, **__: Any) -> Any:
        yield len(prompt["prompt_token_ids"])


class Pool:
    """Of the base model alone."""

    merged = False

    @asynccontextmanager
    async def use(self, *_: Any, **__: Any) -> Any:
        yield SimpleNamespace(job="", version=0, adapter=None)


async def sampled(ids: list[int], embeddings: int) -> list[int]:
    async def announce(key: str) -> None:
        return None

    engine: Any = SimpleNamespace(llm=Llm())
    pool: Any = Pool()
    kept = Captures(8, 8, 8.0)
    client = GatedClient(engine, pool, kept, announce, "hermes", "", embeddings=embeddings)
    params = SimpleNamespace(prompt_logprobs=None)
    prompt = {"type": "token", "prompt_token_ids": ids}
    return [each async for each in client.generate(prompt, params, "r")]


async def test_a_token_without_an_embedding_never_reaches_the_engine() -> None:
    """Gemma 3's tokenizer has one for images, in models of text too: it ended the engine."""
    exceptions = pytest.importorskip("vllm.exceptions")
    assert await sampled([1, LAST], LAST + 1) == [2]
    with pytest.raises(
        exceptions.VLLMValidationError, match="id 262144, which the tokenizer knows"
    ):
        await sampled([1, LAST + 1, 3], LAST + 1)
    # Of a model of images too, those that stand for them have none.
    assert await sampled([1, LAST + 1], 0) == [2]
