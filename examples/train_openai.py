"""Trains the agent of openai_agent.py, whose code does not change, to answer briefly.

python examples/train_openai.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import podium
from openai_agent import answer  # type: ignore[import-not-found]
from podium.training.backend import Backend, HasBackend

QUESTIONS = (
    "What is the capital of France?",
    "What colour is grass?",
    "How many legs has a spider?",
    "What is ice made of?",
)

Agent = Callable[..., Awaitable[str]]
"""Answers a question, with a model at an address: `base_url`, `api_key`, `model`."""


async def rollout(model: podium.TrainableModel, question: str, agent: Agent) -> podium.Trajectory:
    """One answer, the better the shorter; an empty one is worth nothing."""
    words = await agent(
        question,
        base_url=model.inference_base_url,
        api_key=model.inference_api_key,
        model=model.get_inference_name(),
    )
    count = len(words.split())
    return podium.Trajectory(reward=1 / count if count else 0.0, metrics={"words": count})


async def train(
    backend: Backend | HasBackend,
    *,
    base_model: str,
    steps: int,
    attempts: int = 4,
    agent: Agent = answer,
    name: str = "brief-openai",
) -> podium.TrainableModel:
    """Learns from every question in each step."""
    model = podium.TrainableModel(name=name, base_model=base_model)
    await model.register(backend)
    while await model.get_step() < steps:
        groups = await podium.gather_trajectory_groups(
            podium.TrajectoryGroup(rollout(model, question, agent) for _ in range(attempts))
            for question in QUESTIONS
        )
        result = await model.train(groups)
        print(f"step {result.step}: {result.metrics['reward_mean']:.3f}", flush=True)
    return model


async def main() -> None:
    """Against the installation that `podium` itself would find."""
    async with podium.AsyncClient() as client:
        await train(client, base_model="smollm2-135m-instruct", steps=10)


if __name__ == "__main__":
    asyncio.run(main())
