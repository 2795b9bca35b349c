"""An agent written with OpenAI's plain client: it answers, checks itself, and answers again.

It knows nothing of Podium; `train_openai.py` trains it as it is. By itself, with
OPENAI_BASE_URL and OPENAI_API_KEY as OpenAI's client reads them:

    python examples/openai_agent.py MODEL "What is ice made of?"
"""

from __future__ import annotations

import asyncio
import sys

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

SYSTEM = "Answer with one short sentence."


async def answer(
    question: str, *, model: str, base_url: str | None = None, api_key: str | None = None
) -> str:
    """The agent's last word on a question; what is not given comes from the environment."""
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": question},
    ]
    said = ""
    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        for doubt in ("Are you sure? Answer once more, in fewer words.", ""):
            completion = await client.chat.completions.create(
                model=model, messages=messages, max_completion_tokens=24
            )
            said = completion.choices[0].message.content or ""
            messages.append({"role": "assistant", "content": said})
            if doubt:
                messages.append({"role": "user", "content": doubt})
    return said


if __name__ == "__main__":
    print(asyncio.run(answer(sys.argv[2], model=sys.argv[1])))
