"""An agent written with LangGraph: the prebuilt ReAct agent, over OpenAI's API."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent


@tool
def add(a: int, b: int) -> int:
    """Adds two integers."""
    return a + b


def agent(base_url: str, api_key: str, model: str) -> Any:
    llm = ChatOpenAI(
        base_url=base_url, api_key=lambda: api_key, model=model, max_completion_tokens=100
    )
    return create_react_agent(llm, [add], prompt="Use the tool for every sum.")


async def answer(question: str, *, base_url: str, api_key: str, model: str) -> str:
    asked = {"messages": [{"role": "user", "content": question}]}
    state = await agent(base_url, api_key, model).ainvoke(asked)
    return str(state["messages"][-1].content)


async def streamed(question: str, *, base_url: str, api_key: str, model: str) -> str:
    asked = {"messages": [{"role": "user", "content": question}]}
    said = ""
    stream = agent(base_url, api_key, model).astream(asked, stream_mode="messages")
    async for chunk, _ in stream:
        said = "" if chunk.type == "tool" else said + str(chunk.content)
    return said
