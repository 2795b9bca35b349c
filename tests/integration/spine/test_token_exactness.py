"""What trains is what was sampled: ids, positions and log-probs, over the real engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from podium.core.contract import complete_training
from podium.inference.v1 import inference_service_pb2 as inference
from podium.inference.v1 import inference_service_pb2_grpc as inference_grpc
from podium.kit.rpc import connect
from podium.local.launcher import Launcher, LauncherConfig
from podium.local.models import resolve
from podium.rollout.v1 import rollout_service_pb2 as rollout
from podium.rollout.v1 import rollout_service_pb2_grpc as rollout_grpc
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2
from podium_rollout.domain.seeds import derive
from podium_trainer.domain.batch import Weighted
from podium_trainer.domain.packing import pack
from podium_trainer.domain.samples import Refused, Sample, read_samples
from podium_trainer.learner.model import Policy
from support.jobs import at_the_base_model
from support.long_talk import TURNS, LongTalk
from support.rollout_service import environment_here
from transformers import AutoTokenizer

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.long,
    pytest.mark.timeout(600),
]

MODEL = "smollm2-135m-instruct"
SEED = 11


@asynccontextmanager
async def sampler(data_dir: Path, dtype: str) -> AsyncIterator[Launcher]:
    """A stack of its own for another dtype."""
    config = LauncherConfig(
        data_dir=data_dir,
        port_base=0,
        services=("registry", "inference", "rollout"),
        model=MODEL,
        dtype=dtype,
    )
    async with Launcher(config) as stack:
        yield stack


async def talk(
    stack: Launcher, environment: str, temperature: float, attempts: int
) -> list[trajectory_pb2.Trajectory]:
    """A group of eight-turn episodes under the base model."""
    request = rollout.CollectGroupRequest(
        group_id=f"talk-{temperature}",
        job_id="talk",
        environment=spec_pb2.EnvironmentSpec(name="long_talk", address=environment),
        scenario=trajectory_pb2.Scenario(id="talk", split="train"),
        attempts=attempts,
        sampling=policy_pb2.SamplingParams(temperature=temperature, max_tokens=12),
        episode=spec_pb2.EpisodeSpec(max_turns=20),
        seed=SEED,
    )
    channel = connect(stack.address("rollout"))
    stream = rollout_grpc.RolloutServiceStub(channel).CollectGroup(request, timeout=400)
    trajectories = [reply.trajectory async for reply in stream if reply.HasField("trajectory")]
    await channel.close()
    assert len(trajectories) == attempts
    return trajectories


def samples_of(trajectory: trajectory_pb2.Trajectory) -> list[Sample]:
    read = read_samples(trajectory, vocabulary=49152, max_tokens=2048)
    assert not isinstance(read, Refused)
    return read


def difference(policy: Policy, trajectories: list[trajectory_pb2.Trajectory]) -> float:
    """Mean |sampler's - trainer's| log-prob in nats, on rows that share their prefixes."""
    samples = [sample for t in trajectories for sample in samples_of(t)]
    rows = pack([Weighted(s, 0, i, 1.0, 1.0) for i, s in enumerate(samples)], 4096)
    deltas = []
    with torch.no_grad():
        for row in rows:
            own = policy.evaluate(row).logprobs.numpy()
            deltas.append(np.abs(own - row.logprobs))
    return float(np.concatenate(deltas).mean())


def trainer(dtype: torch.dtype) -> Policy:
    training = complete_training(spec_pb2.TrainingSpec())
    return Policy(resolve(MODEL), MODEL, training, seed=0, dtype=dtype)


async def test_t19_eight_turns_in_float32(real_stack: Launcher) -> None:
    tokenizer = AutoTokenizer.from_pretrained(resolve(MODEL))
    policy = trainer(torch.float32)
    await at_the_base_model(real_stack)
    async with environment_here(LongTalk) as environment:
        channel = connect(real_stack.address("inference"))
        engine = inference_grpc.InferenceServiceStub(channel)
        for temperature, attempts in ((1.0, 2), (0.7, 1)):
            trajectories = await talk(real_stack, environment, temperature, attempts)
            for trajectory in trajectories:
                assert trajectory.stop_reason == trajectory_pb2.STOP_REASON_TERMINATED
                (history,) = trajectory.histories
                record = history.tokens
                assert len(record.spans) == TURNS
                said = [
                    m.content for m in history.messages if m.role == trajectory_pb2.ROLE_ASSISTANT
                ]
                (sample,) = samples_of(trajectory)
                at = 0
                for turn, span in enumerate(record.spans):
                    sampled = list(record.token_ids[span.start : span.start + span.length])
                    # The engine, asked once more with the same prompt and seed, says the same.
                    sampling = policy_pb2.SamplingParams(
                        temperature=temperature,
                        max_tokens=12,
                        seed=derive(SEED, trajectory.id, turn),
                    )
                    again = await engine.Generate(
                        inference.GenerateRequest(
                            prompt_token_ids=record.token_ids[: span.start], sampling=sampling
                        ),
                        timeout=60,
                    )
                    assert list(again.generation.token_ids) == sampled
                    assert again.generation.text == said[turn]
                    assert tokenizer.decode(sampled, skip_special_tokens=True) == said[turn]
                    # And the trainer trains those ids, at those positions.
                    here = slice(at, at + span.length)
                    assert list(sample.targets[here]) == sampled
                    assert list(sample.positions[here] + 1) == list(
                        range(span.start, span.start + span.length)
                    )
                    assert sample.logprobs[here] == pytest.approx(
                        list(again.generation.logprobs), abs=1e-4
                    )
                    assert set(sample.temperatures[here]) == {np.float32(temperature)}
                    at += span.length
                assert at == len(sample.targets) == len(record.logprobs)
            assert difference(policy, trajectories) < 1e-4
        await channel.close()


@pytest.mark.full
async def test_both_sides_in_bfloat16(tmp_path: Path) -> None:
    policy = trainer(torch.bfloat16)
    async with (
        environment_here(LongTalk) as environment,
        sampler(tmp_path / "stack", "bfloat16") as stack,
    ):
        for temperature in (1.0, 0.7):
            trajectories = await talk(stack, environment, temperature, attempts=1)
            assert difference(policy, trajectories) < 0.06
