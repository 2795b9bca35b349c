"""The OpenAI API behind which the steps of an episode are the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from podium.environments import Message, ToolCall, user
from podium.environments.adapters.verifiers_model import EpisodeModel, ModelServer

FIRST: Any = {"role": "user", "content": "What is 1 + 1?"}
TOOL: Any = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
CALLING = Message("assistant", "", (ToolCall("call_0", "add", '{"a": 1}'),))


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    server = ModelServer()
    await server.start()
    yield server
    await server.stop()


def client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)


async def asked(conversation: EpisodeModel) -> Any:
    async with asyncio.timeout(10):
        return conversation.observe(await conversation.requests.get())


async def test_a_plain_client_gets_the_answers_of_the_steps(model: ModelServer) -> None:
    url, conversation = model.open()
    completions = client(url).chat.completions
    asking = asyncio.create_task(completions.create(model="m", messages=[FIRST], tools=[TOOL]))
    observation = await asked(conversation)
    assert observation.messages == [user("What is 1 + 1?")]
    assert [tool.name for tool in observation.tools] == ["add"]
    conversation.answer(CALLING)
    choice = (await asking).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None

    answered: Any = [
        FIRST,
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": "call_0", "content": [{"type": "text", "text": "2"}]},
    ]
    asking = asyncio.create_task(completions.create(model="m", messages=answered))
    observation = await asked(conversation)
    assert observation.messages == [Message("tool", "2", tool_call_id="call_0")]
    assert observation.tools == []
    conversation.answer(Message("assistant", "2"))
    assert (await asking).choices[0].message.content == "2"


async def test_a_stream_says_the_same(model: ModelServer) -> None:
    url, conversation = model.open()

    async def streamed() -> Any:
        async with client(url).chat.completions.stream(model="m", messages=[FIRST]) as stream:
            return await stream.get_final_completion()

    asking = asyncio.create_task(streamed())
    await asked(conversation)
    conversation.answer(CALLING)
    completion = await asking
    (call,) = completion.choices[0].message.tool_calls or []
    assert (call.id, call.function.name, call.function.arguments) == ("call_0", "add", '{"a": 1}')
    assert completion.choices[0].finish_reason == "tool_calls"


async def test_a_conversation_that_is_cut_is_out_of_context_for_good(model: ModelServer) -> None:
    url, conversation = model.open()
    completions = client(url).chat.completions
    asking = asyncio.create_task(completions.create(model="m", messages=[FIRST]))
    await asked(conversation)
    conversation.cut()
    for request in (asking, completions.create(model="m", messages=[FIRST])):
        with pytest.raises(openai.BadRequestError) as caught:
            await request
        assert caught.value.code == "context_length_exceeded"
    model.close(url)
    with pytest.raises(openai.NotFoundError):
        await completions.create(model="m", messages=[FIRST])


@pytest.mark.parametrize(
    ("messages", "session", "words"),
    [
        ([{"role": "user", "content": "Summary: they asked for a sum."}], "a", "rewrote"),
        ([], "a", "rewrote"),
        ([FIRST], "b", "a second agent asked"),
        ([FIRST, {"role": "user", "content": [{"type": "image_url"}]}], "a", "not text"),
    ],
)
async def test_what_cannot_be_continued_token_for_token_is_refused(
    messages: list[Any], session: str, words: str
) -> None:
    conversation = EpisodeModel()
    first = asyncio.create_task(conversation.ask({"messages": [FIRST]}, "a"))
    await asked(conversation)
    conversation.answer(Message("assistant", "2"))
    await first
    second = asyncio.create_task(conversation.ask({"messages": messages}, session))
    with pytest.raises(RuntimeError, match=words):
        await asked(conversation)
    second.cancel()
