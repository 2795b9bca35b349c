"""Demonstrations of email search, for `podium sft`: what the scripted agent does in training.

`python examples/email_demonstrations.py 24 > demonstrations.jsonl` writes so many conversations in
which one search found the email. No question of the held-out split is among them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from podium.environments.email_search import EmailSearch
from podium.environments.email_search.agents import SearchingAgent
from podium.environments.types import Message

CONFIG = {"actions": ["search", "select"]}
TURNS = 2


async def demonstrations() -> AsyncIterator[dict[str, Any]]:
    """Rows of fine-tuning, in the order of the training questions."""
    environment = EmailSearch(CONFIG)
    for scenario in environment.scenarios("train"):
        agent = SearchingAgent()
        observation = await environment.reset(scenario, seed=0)
        # The worked example of the prompt is no demonstration: of these messages none trains.
        rows = [_row(message, trains=False) for message in observation.messages]
        for _ in range(TURNS):
            said = await agent.act(observation)
            result = await environment.step(said)
            observation = result.observation
            rows += [
                _row(said, trains=True),
                *(_row(m, trains=False) for m in observation.messages),
            ]
        if result.metrics["success"]:
            yield {"messages": rows}


def _row(message: Message, *, trains: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": message.content}
    return row if trains or message.role != "assistant" else {**row, "weight": 0}


async def main(count: int) -> None:
    """Writes the first `count` of them, a line each."""
    written = 0
    async for row in demonstrations():
        if written == count:
            return
        print(json.dumps(row))
        written += 1


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 24))
