"""OpenAI's own client under a rollout's key: what the engine saw and sampled is handed over."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import pytest_asyncio
from podium.core.errors import InvalidArgumentError, NotFoundError
from podium.core.rollout_keys import signed
from podium.inference.v1 import inference_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from podium.types.v1 import trajectory_pb2
from support.pool import TinyPool, adapter_files, reference_logprobs

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.timeout(300),
]

MESSAGES: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Name a colour."},
]
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
}


@pytest.fixture
def key() -> str:
    return f"podium-rollout-{uuid.uuid4().hex}"


@pytest_asyncio.fixture(loop_scope="session")
async def client(merged: TinyPool, key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=merged.stack.openai_base_url, api_key=key) as made:
        yield made


async def take(pool: TinyPool, key: str) -> list[pb.CapturedCall]:
    with rpc_errors("inference"):
        stream = pool.stub.TakeCapture(pb.TakeCaptureRequest(key=key), timeout=30)
        return [response.call async for response in stream]


async def test_t19_whole_and_streamed_answers_have_exact_tokens(
    merged: TinyPool, client: openai.AsyncOpenAI, key: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "model": str(merged.model),
        "messages": MESSAGES,
        "temperature": 0.7,
        "max_tokens": 12,
        "seed": 5,
    }
    whole = await client.chat.completions.create(**options)
    assert whole.choices[0].logprobs is None
    options["extra_headers"] = {"x-stainless-retry-count": "1"}
    stream = await client.chat.completions.create(**options, stream=True)
    text = "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
    first, second = await take(merged, key)
    assert list(first.generation.token_ids) == list(second.generation.token_ids)
    assert list(first.prompt_token_ids) == list(second.prompt_token_ids)
    assert first.reply.content == whole.choices[0].message.content == text
    assert [first.repeated_request, second.repeated_request] == [False, True]
    for call in (first, second):
        assert call.generation.finish_reason == trajectory_pb2.FINISH_REASON_LENGTH
        assert (call.generation.policy, call.untrainable) == ("", "")
        assert call.temperature == np.float32(0.7)
        assert [message.content for message in call.messages] == ["Be brief.", "Name a colour."]
        assert call.start_time.ToNanoseconds() < call.end_time.ToNanoseconds()
        expected = reference_logprobs(
            merged.model,
            None,
            list(call.prompt_token_ids),
            list(call.generation.token_ids),
            0.7,
            tmp_path,
        )
        assert np.abs(np.array(call.generation.logprobs) - expected).mean() < 1e-4
    with rpc_errors("inference"):
        rendered = await merged.stub.Render(pb.RenderRequest(messages=first.messages))
    assert list(first.prompt_token_ids) == list(rendered.token_ids)


async def test_choices_tools_and_what_must_not_train(
    merged: TinyPool, client: openai.AsyncOpenAI, key: str
) -> None:
    options: dict[str, Any] = {
        "model": str(merged.model),
        "messages": MESSAGES,
        "max_tokens": 4,
    }
    several = await client.chat.completions.create(**options, n=2, temperature=1, tools=[TOOL])
    await client.chat.completions.create(**options, top_p=0.5)
    await client.completions.create(
        model=str(merged.model), prompt="Once upon", max_tokens=3, logprobs=2
    )
    one, two, cut, plain = await take(merged, key)
    assert sorted([one.reply.content, two.reply.content]) == sorted(
        choice.message.content or "" for choice in several.choices
    )
    assert [tool.name for tool in one.tools] == ["look"]
    assert list(one.prompt_token_ids) == list(two.prompt_token_ids)
    assert cut.untrainable == "top_p is 0.5"
    assert [message.content for message in plain.messages] == ["Once upon"]
    assert len(plain.generation.logprobs) == len(plain.generation.token_ids) == 3


async def test_an_answer_that_nobody_waited_for_is_aborted(
    merged: TinyPool, client: openai.AsyncOpenAI, key: str
) -> None:
    stream = await client.chat.completions.create(
        model=str(merged.model), messages=MESSAGES, max_tokens=1500, stream=True
    )
    async for _ in stream:
        break
    await stream.close()
    async with asyncio.timeout(30):
        while True:
            try:
                (call,) = await take(merged, key)
                break
            except NotFoundError:
                await asyncio.sleep(0.05)
    assert call.generation.finish_reason == trajectory_pb2.FINISH_REASON_ABORTED
    assert len(call.generation.token_ids) < 1500


async def test_keys_do_not_mix_and_others_are_not_captured(merged: TinyPool) -> None:
    keys = [f"podium-rollout-{uuid.uuid4().hex}" for _ in range(4)]

    async def say(index: int) -> None:
        async with openai.AsyncOpenAI(
            base_url=merged.stack.openai_base_url, api_key=keys[index]
        ) as client:
            for turn in range(index + 1):
                await client.chat.completions.create(
                    model=str(merged.model),
                    messages=[{"role": "user", "content": f"{index}/{turn}"}],
                    max_tokens=2,
                )

    await asyncio.gather(*(say(index) for index in range(4)))
    for index, key in enumerate(keys):
        calls = await take(merged, key)
        said = [call.messages[0].content for call in calls]
        assert said == [f"{index}/{turn}" for turn in range(index + 1)]
    with pytest.raises(NotFoundError):
        await take(merged, "podium-rollout-nobody")
    with pytest.raises(InvalidArgumentError, match="key"):
        await take(merged, "sk-somebody-elses")


@pytest.mark.parametrize("mode", ["merged", "adapter"])
async def test_the_policy_and_version_are_those_that_sampled(
    mode: str, merged: TinyPool, shared: TinyPool, key: str
) -> None:
    pool = merged if mode == "merged" else shared
    url, said = pool.stack.openai_base_url, signed(key, pool.token)
    await pool.publish("captured", 3, adapter_files(pool.model, seed=3))
    await pool.load("captured", 3)
    try:
        async with openai.AsyncOpenAI(base_url=url, api_key=said) as client:
            for name in ("captured", "captured@3"):
                await client.chat.completions.create(model=name, messages=MESSAGES, max_tokens=2)
        for call in await take(pool, key):
            assert (call.generation.policy, call.generation.weights_version) == ("captured", 3)
    finally:
        await pool.stub.UnloadPolicy(pb.UnloadPolicyRequest(job="captured"))
