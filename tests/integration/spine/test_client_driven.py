"""Agents with OpenAI's plain client train a model through the whole stack."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from podium import (
    TrainableModel,
    TrainConfig,
    Trajectory,
    TrajectoryGroup,
    train_sft_from_file,
)
from podium import gather_trajectory_groups as gather
from podium.local.launcher import Launcher
from podium.local.models import resolve
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.examples import example
from support.full import long
from support.jobs import client_of
from transformers import AutoTokenizer

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.timeout(900),
]

MODEL = "smollm2-135m-instruct"
COLOURS = ("red", "green")


def spec() -> spec_pb2.JobSpec:
    training = spec_pb2.TrainingSpec(learning_rate=2e-4, lora=spec_pb2.LoraSpec(rank=4))
    return spec_pb2.JobSpec(training=training, recovery_timeout_seconds=240)


async def rollout(model: TrainableModel, colour: str, *, stream: bool) -> Trajectory:
    """Two turns; an answer is as good as it has vowels."""
    trajectory = Trajectory(
        messages_and_choices=[
            {"role": "system", "content": "Answer in one short sentence."},
            {"role": "user", "content": f"What is {colour}?"},
        ]
    )
    async with model.openai_client() as client:
        for turn in range(2):
            options: dict[str, Any] = {
                "model": model.get_inference_name(),
                "messages": trajectory.messages(),
                "max_tokens": 10,
                "temperature": 0.9,
            }
            if stream:
                chunks = await client.chat.completions.create(**options, stream=True)
                text = "".join([c.choices[0].delta.content or "" async for c in chunks])
            else:
                text = (await client.chat.completions.create(**options)).choices[0].message.content
            trajectory.messages_and_choices.append({"role": "assistant", "content": text})
            trajectory.reward += sum(letter in "aeiou" for letter in text)
            if turn == 0:
                trajectory.messages_and_choices.append({"role": "user", "content": "Why?"})
    return trajectory.finish()


async def collected(model: TrainableModel) -> list[TrajectoryGroup]:
    return await gather(
        TrajectoryGroup(
            (rollout(model, colour, stream=bool(attempt % 2)) for attempt in range(4)),
            metadata={"scenario_id": colour},
        )
        for colour in COLOURS
    )


def that_teach(stored: list[trajectory_pb2.Trajectory]) -> list[trajectory_pb2.Trajectory]:
    """Those of groups whose attempts were not all as good: the others have no advantage."""
    rewards: dict[str, set[float]] = {}
    for each in stored:
        rewards.setdefault(each.group_id, set()).add(each.reward)
    return [each for each in stored if len(rewards[each.group_id]) > 1]


def sampled_tokens(stored: list[trajectory_pb2.Trajectory]) -> int:
    return sum(
        span.length
        for trajectory in stored
        for history in trajectory.histories
        for span in history.tokens.spans
    )


@pytest.mark.long
async def test_two_steps_of_an_agent_that_also_streams(
    real_stack: Launcher, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(resolve(MODEL))
    async with client_of(real_stack) as client:
        model = await client.models.register("vowels", MODEL, spec=spec(), base_path=tmp_path)
        dtype = (await client.policies.engine()).dtype
        for step in (1, 2):
            groups = await collected(model)
            result = await model.train(groups)
            assert result.step == step
            assert result.metrics["trajectories"] == 8
            # The trainer computes what the engine said it sampled with: the tokens are exact.
            limit = 1e-3 if dtype == "float32" else 0.06
            assert result.metrics["train/logprob_difference_mean"] < limit
            assert result.metrics["train/missing_logprob_fraction"] == 0
            stored = [each async for each in client.jobs.trajectories(model.name, step=step)]
            assert result.metrics["tokens_sampled"] == sampled_tokens(stored)
            assert result.metrics["train/tokens_trained"] == sampled_tokens(that_teach(stored))
            served = [policy.version async for policy in client.policies.list(model.name)]
            assert step in served
        stored = [each async for each in client.jobs.trajectories(model.name)]
        assert len(stored) == 16
        for trajectory in stored:
            step = int(trajectory.group_id.split("/s")[1].split("/")[0])
            said = [
                message.content
                for message in trajectory.histories[-1].messages
                if message.role == trajectory_pb2.ROLE_ASSISTANT
            ]
            sampled = []
            for history in trajectory.histories:
                tokens = history.tokens
                assert {s.weights_version for s in tokens.spans} == {step - 1}
                assert {s.policy for s in tokens.spans} == {model.name}
                assert sum(s.length for s in tokens.spans) == len(tokens.logprobs)
                for span in tokens.spans:
                    ids = list(tokens.token_ids)[span.start : span.start + span.length]
                    sampled.append(tokenizer.decode(ids, skip_special_tokens=True))
            assert sampled == said
            assert trajectory.reward == sum(letter in "aeiou" for letter in "".join(said))
        assert (await model.log(groups, "val"))["val/reward"] > 0
        newest = (await model.checkpoints())[0]
        assert newest.manifest.version == 2
        await model.download(tmp_path / "adapter")
        assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
        await model.finish()
        job = await client.jobs.get(model.name)
        assert (job.completed_steps, job.phase) == (2, "")


async def test_a_model_is_shown_rows_from_a_file_and_then_learns_from_its_own_attempts(
    stack: Launcher, tmp_path: Path
) -> None:
    rows = tmp_path / "train.jsonl"
    said = [{"role": "user", "content": "What is red?"}, {"role": "assistant", "content": "Aa."}]
    rows.write_text(f"{json.dumps({'messages': said})}\n" * 4)
    async with client_of(stack) as client:
        model = await client.models.register("shown", stack.config.model, spec=spec())
        options: dict[str, Any] = {"epochs": 2, "peak_lr": 2e-3, "schedule_type": "constant"}
        shown = await train_sft_from_file(model, rows, **options, warmup_ratio=0)
        assert shown.step == 4
        own = (await model.train(await collected(model), TrainConfig(learning_rate=1e-4))).metrics
        assert own["train/logprob_difference_mean"] < 1e-3
        steps = [step.metrics async for step in client.jobs.steps(model.name)]
        losses = [step["train/loss"] for step in steps[:4]]
        assert losses[-1] < losses[0] - 0.05
        assert [step["train/learning_rate"] for step in steps] == [*[2e-3] * 4, 1e-4]
        assert (await client.jobs.get(model.name)).usage.sampled_tokens == own["tokens_sampled"]
        await model.finish()


async def test_a_client_goes_on_after_the_controller_was_killed(stack: Launcher) -> None:
    base = stack.config.model
    async with client_of(stack) as client:
        model = await client.models.register("survivor", base, spec=spec())
        groups = await collected(model)
        restarts = stack.restarts("controller")
        training = asyncio.create_task(model.train(groups))
        async with asyncio.timeout(120):
            # The tiny model's phases are short; in any of these it has the batch.
            while (await client.jobs.get(model.name)).phase not in ("train", "publish", "serve"):
                await asyncio.sleep(0.01)
        os.kill(stack.pid("controller"), signal.SIGKILL)
        assert (await training).step == 1
        assert stack.restarts("controller") == restarts + 1
    # Another process of the agent's, which knows nothing but the name.
    async with client_of(stack) as client:
        model = await client.models.register("survivor", base, spec=spec())
        assert await model.get_step() == 1
        assert (await model.train(await collected(model))).step == 2
        steps = [step async for step in client.jobs.steps(model.name)]
        assert [step.number for step in steps] == [1, 2]
        await model.finish()


@pytest.mark.parametrize("name", [long("train_langgraph"), "train_openai"])
async def test_an_agent_that_knows_nothing_of_podium_trains_as_it_is(
    stack: Launcher, name: str
) -> None:
    """One written with LangGraph, and one with OpenAI's plain client."""
    script = example(name)
    async with client_of(stack) as client:
        model = await script.train(client, base_model=stack.config.model, steps=1, attempts=4)
        (step,) = [step async for step in client.jobs.steps(model.name)]
        assert step.metrics["trajectories"] == 4 * len(script.QUESTIONS)
        assert step.metrics["trajectories_failed"] == 0
        # Both compute in float32.
        assert step.metrics["train/logprob_difference_mean"] < 1e-3
        stored = [each async for each in client.jobs.trajectories(model.name)]
        assert step.metrics["tokens_sampled"] == sampled_tokens(stored) > 0
        assert step.metrics["train/tokens_trained"] == sampled_tokens(that_teach(stored)) > 0
        for trajectory in stored:
            assert sum(len(history.tokens.spans) for history in trajectory.histories) == 2
        await model.finish()
