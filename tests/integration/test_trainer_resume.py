"""T25: train 10 = train 5, SIGKILL, resume 5; bit for bit, through the real registry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from podium.kit.registry_client import RegistryClient
from podium.kit.rpc import connect
from podium.registry.v1 import registry_service_pb2 as registry_pb2
from podium.trainer.v1 import trainer_service_pb2 as pb
from podium.trainer.v1 import trainer_service_pb2_grpc as pb_grpc
from podium.types.v1 import spec_pb2
from support.full import full
from support.tiny_policy import build_small_llama, step_groups
from support.trainer_process import ServiceProcess, service, step_messages

STEPS = 10
TRAINING = spec_pb2.TrainingSpec(
    steps=STEPS,
    learning_rate=5e-3,
    warmup_steps=3,
    weight_decay=0.01,
    schedule=spec_pb2.SCHEDULE_COSINE,
    loss=spec_pb2.LossSpec(kl_coefficient=0.05),
)


async def train(
    process: ServiceProcess,
    model: Path,
    job_id: str,
    training: spec_pb2.TrainingSpec,
    steps: Sequence[int],
    resume: int | None,
) -> None:
    async with connect(process.address) as channel:
        stub: pb_grpc.TrainerServiceAsyncStub = pb_grpc.TrainerServiceStub(channel)
        opened = await stub.Open(
            pb.OpenRequest(
                job_id=job_id,
                base_model=str(model),
                training=training,
                seed=11,
                resume_version=resume,
            ),
            timeout=120,
        )
        assert opened.step == steps[0] - 1
        if resume is None:
            await stub.Save(pb.SaveRequest(job_id=job_id, step=0), timeout=60)
        for step in steps:
            response = await stub.Step(step_messages(job_id, step, step_groups(step)), timeout=120)
            assert response.metrics["tokens_trained"] > 0
            await stub.Save(pb.SaveRequest(job_id=job_id, step=step), timeout=60)
        if steps[-1] == STEPS:
            await stub.Close(pb.CloseRequest(job_id=job_id), timeout=60)


def digests(version: registry_pb2.Version) -> dict[str, str]:
    return {file.path: file.digest for file in version.manifest.files}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "trained",
    [{"lora": {"rank": 4}}, full({"trainable": "TRAINABLE_KIND_FULL"})],
    ids=["lora", "full"],
)
async def test_t25_resume_is_bit_for_bit(trained: dict[str, Any], tmp_path: Path) -> None:
    training = spec_pb2.TrainingSpec(**trained)
    training.MergeFrom(TRAINING)
    model = build_small_llama(tmp_path / "model")
    data = {"PODIUM_REGISTRY_DATA_DIR": str(tmp_path / "data")}
    async with service("registry", tmp_path / "registry.log", data) as registry:
        environment = {
            "PODIUM_TRAINER_REGISTRY_ADDRESS": registry.address,
            "PODIUM_TRAINER_THREADS": "1",
            "PODIUM_TRAINER_ROW_TOKENS": "96",
        }
        async with service("trainer", tmp_path / "first.log", environment) as process:
            await train(process, model, "whole", training, range(1, STEPS + 1), None)
            await train(process, model, "parts", training, range(1, 6), None)
            await process.kill()
        # Whose sets have another order: it shares no hash seed with the first.
        second = service("trainer", tmp_path / "second.log", environment, anew=True)
        async with second as process:
            await train(process, model, "parts", training, range(6, STEPS + 1), 5)
            assert await process.terminate() == 0
        client = RegistryClient(registry.address)
        try:
            for step in range(STEPS + 1):
                whole = await client.get_version("whole", step)
                parts = await client.get_version("parts", step)
                assert digests(whole) == digests(parts), f"step {step}"
            moved = [digests(await client.get_version("whole", step)) for step in (9, 10)]
            assert moved[0] != moved[1]
        finally:
            await client.close()
