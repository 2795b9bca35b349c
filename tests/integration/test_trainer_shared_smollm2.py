"""Two jobs on SmolLM2 at one real trainer: what they come to, and what they hold."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from podium.kit.registry_client import RegistryClient
from podium.kit.rpc import connect
from podium.trainer.v1 import trainer_service_pb2 as pb
from podium.trainer.v1 import trainer_service_pb2_grpc as pb_grpc
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.tiny_policy import group, trajectory
from support.trainer_process import ServiceProcess, service, step_messages

MODEL = "smollm2-135m-instruct"
VOCABULARY = 49152
STEPS = 2
JOBS: dict[str, dict[str, Any]] = {
    "red": {"lora": {"rank": 16}, "loss": {"kl_coefficient": 0.05}},
    "blue": {"lora": {"rank": 8, "alpha": 16, "target_modules": ["q_proj", "down_proj"]}},
}
"""A project each, of the same name."""


def groups(job: str, step: int) -> list[trajectory_pb2.Group]:
    """Two groups of two attempts with 24 tokens of their own after 16 in common."""
    rng = np.random.default_rng([len(job), step])

    def attempt(name: str, prompt: list[int], reward: float) -> trajectory_pb2.Trajectory:
        answer = rng.integers(17, VOCABULARY, 24).tolist()
        logprobs = (-rng.uniform(4, 14, 24)).tolist()
        return trajectory(name, reward, [*prompt, *answer], [(16, 24)], logprobs=logprobs)

    made = []
    for name in (f"{job}/s{step}/g0", f"{job}/s{step}/g1"):
        prompt = rng.integers(17, VOCABULARY, 16).tolist()
        made.append(group(name, *(attempt(f"{name}/t{i}", prompt, float(i)) for i in range(2))))
    return made


async def whole(trainer: ServiceProcess, job: str, prefix: str) -> None:
    """All of a job's steps; it stays open."""
    name = f"{prefix}{job}"
    training = spec_pb2.TrainingSpec(steps=STEPS, learning_rate=1e-3, **JOBS[job])
    async with connect(trainer.address) as channel:
        stub: pb_grpc.TrainerServiceAsyncStub = pb_grpc.TrainerServiceStub(channel)
        opening = pb.OpenRequest(
            job_id=name, base_model=MODEL, training=training, seed=len(job), project=job
        )
        await stub.Open(opening, timeout=600)
        await stub.Save(pb.SaveRequest(job_id=name, step=0), timeout=600)
        for step in range(1, STEPS + 1):
            await stub.Step(step_messages(name, step, groups(job, step)), timeout=600)
            await stub.Save(pb.SaveRequest(job_id=name, step=step), timeout=600)


async def close(trainer: ServiceProcess, name: str) -> None:
    async with connect(trainer.address) as channel:
        stub: pb_grpc.TrainerServiceAsyncStub = pb_grpc.TrainerServiceStub(channel)
        await stub.Close(pb.CloseRequest(job_id=name), timeout=60)


async def versions(registry: ServiceProcess, job: str) -> list[dict[str, str]]:
    """Digests of the files of each version: weights, moments, masters and random state."""
    client = RegistryClient(registry.address)
    try:
        found = [await client.get_version(job, step) for step in range(STEPS + 1)]
    finally:
        await client.close()
    return [{it.path: it.digest for it in each.manifest.files} for each in found]


def most_memory(process: ServiceProcess) -> int:
    """KiB that were resident at most."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_two_jobs_on_smollm2_are_each_what_they_are_alone(tmp_path: Path) -> None:
    data = {"PODIUM_REGISTRY_DATA_DIR": str(tmp_path / "data")}
    async with service("registry", tmp_path / "registry.log", data) as registry:

        def trainer(name: str, max_jobs: int) -> Any:
            environment = {
                "PODIUM_TRAINER_REGISTRY_ADDRESS": registry.address,
                "PODIUM_TRAINER_THREADS": "1",
                "PODIUM_TRAINER_MAX_JOBS": str(max_jobs),
            }
            return service("trainer", tmp_path / f"{name}.log", environment)

        async with trainer("lone", 1) as lone:
            await whole(lone, "red", "lone-")
            one = most_memory(lone)
            await close(lone, "lone-red")
            await whole(lone, "blue", "lone-")
        async with trainer("shared", 2) as shared:
            await asyncio.gather(*(whole(shared, job, "") for job in JOBS))
            two = most_memory(shared)
        for job in JOBS:
            alone = await versions(registry, f"lone-{job}")
            assert await versions(registry, job) == alone
            # Each step moved it, and the two jobs differ.
            weights = "adapter/adapter_model.safetensors"
            assert len({files[weights] for files in alone}) == STEPS + 1
        assert await versions(registry, "red") != await versions(registry, "blue")
    assert two <= 1.3 * one, f"{one} KiB with one job, {two} KiB with two"
