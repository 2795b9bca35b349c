"""Trains the LangGraph agent beside this file, whose code does not change, to answer briefly.

python examples/train_langgraph.py
"""

from __future__ import annotations

import asyncio
from functools import partial

import podium
from langgraph_agent import answer  # type: ignore[import-not-found]
from train_openai import QUESTIONS  # type: ignore[import-not-found]
from train_openai import train as train_agent

__all__ = ["QUESTIONS", "train"]

train = partial(train_agent, agent=answer, name="brief-langgraph")


async def main() -> None:
    """Against the installation that `podium` itself would find."""
    async with podium.AsyncClient() as client:
        await train(client, base_model="smollm2-135m-instruct", steps=10)


if __name__ == "__main__":
    asyncio.run(main())
