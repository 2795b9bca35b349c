"""An agent written with Pydantic AI: a tool and a structured answer, over three APIs."""

from __future__ import annotations

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


class Sum(BaseModel):
    total: int


def agent(llm: Model) -> Agent[None, Sum]:
    made = Agent(
        llm,
        output_type=Sum,
        instructions="Use the tool for every sum.",
        model_settings={"max_tokens": 100},
    )

    @made.tool_plain
    def add(a: int, b: int) -> int:
        """Adds two integers."""
        return a + b

    return made


async def answer(question: str, *, base_url: str, api_key: str, model: str) -> str:
    llm = OpenAIChatModel(model, provider=OpenAIProvider(base_url=base_url, api_key=api_key))
    return str((await agent(llm).run(question)).output.total)


async def streamed(question: str, *, base_url: str, api_key: str, model: str) -> str:
    llm = OpenAIChatModel(model, provider=OpenAIProvider(base_url=base_url, api_key=api_key))
    async with agent(llm).run_stream(question) as result:
        return str((await result.get_output()).total)


async def responses(question: str, *, base_url: str, api_key: str, model: str) -> str:
    llm = OpenAIResponsesModel(model, provider=OpenAIProvider(base_url=base_url, api_key=api_key))
    return str((await agent(llm).run(question)).output.total)


async def anthropic(question: str, *, base_url: str, api_key: str, model: str) -> str:
    root = base_url.removesuffix("/v1")
    llm = AnthropicModel(model, provider=AnthropicProvider(base_url=root, api_key=api_key))
    return str((await agent(llm).run(question)).output.total)
