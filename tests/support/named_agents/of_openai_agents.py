"""An agent written with OpenAI's Agents SDK: over chat completions, and over its default API."""

from __future__ import annotations

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.models.interface import Model
from openai import AsyncOpenAI

set_tracing_disabled(True)


@function_tool
def add(a: int, b: int) -> int:
    """Adds two integers.

    Args:
        a: one.
        b: the other.
    """
    return a + b


def agent(llm: Model) -> Agent:
    return Agent(
        name="Adder",
        instructions="Use the tool for every sum.",
        tools=[add],
        model=llm,
        model_settings=ModelSettings(max_tokens=100),
    )


async def answer(question: str, *, base_url: str, api_key: str, model: str) -> str:
    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        llm = OpenAIChatCompletionsModel(model, client)
        return str((await Runner.run(agent(llm), question)).final_output)


async def streamed(question: str, *, base_url: str, api_key: str, model: str) -> str:
    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        result = Runner.run_streamed(agent(OpenAIChatCompletionsModel(model, client)), question)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)


async def responses(question: str, *, base_url: str, api_key: str, model: str) -> str:
    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        llm = OpenAIResponsesModel(model, client)
        return str((await Runner.run(agent(llm), question)).final_output)


async def responses_streamed(question: str, *, base_url: str, api_key: str, model: str) -> str:
    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        result = Runner.run_streamed(agent(OpenAIResponsesModel(model, client)), question)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)
