"""Jobs of two projects at once on one real trainer and one pool, as `podium up --jobs` has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.kit.rpc import connect
from podium.local.launcher import Launcher, LauncherConfig
from podium.trainer.v1 import trainer_service_pb2 as trainer_pb
from podium.trainer.v1 import trainer_service_pb2_grpc as trainer_grpc
from support.jobs import client_of, small_spec
from support.tiny_model import build_tiny_model

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.long,
    pytest.mark.timeout(600),
]

STEPS = 3


async def test_two_jobs_train_at_once_on_one_trainer_and_end_whole(tmp_path: Path) -> None:
    model = str(build_tiny_model(tmp_path / "tiny"))
    config = LauncherConfig(
        data_dir=tmp_path / "stack",
        port_base=0,
        model=model,
        dtype="float32",
        jobs=2,
        environment={
            "PODIUM_INFERENCE_MAX_NUM_SEQS": "16",
            "PODIUM_INFERENCE_KV_CACHE_BYTES": str(256 << 20),
        },
    )
    async with Launcher(config) as stack, client_of(stack) as client:
        for rank, project in ((4, "red"), (8, "blue")):
            spec = small_spec(STEPS, model=model)
            spec.project = project
            spec.training.lora.rank = rank
            await client.jobs.create(spec, job_id=project, request_id=project)
        ended = [await client.jobs.wait(name, within=400) for name in ("red", "blue")]
        for job in ended:
            assert job.state == jobs.JOB_STATE_SUCCEEDED, job.failure_message
            assert job.trainer_pool == "shared"
            # A random model earns nothing to learn from; what jobs of one trainer come to is in
            # test_trainer_shared.py.
            assert job.usage.sampled_tokens > 0
            assert job.usage.trainer_seconds > 0
            steps = [step async for step in client.jobs.steps(job.id)]
            assert [step.number for step in steps] == [*range(1, STEPS + 1)]
        red, blue = ended
        # Neither waited for the other's end.
        assert max(red.start_time.ToNanoseconds(), blue.start_time.ToNanoseconds()) < min(
            red.end_time.ToNanoseconds(), blue.end_time.ToNanoseconds()
        )
        channel = connect(stack.address("trainer"))
        trainer = trainer_grpc.TrainerServiceStub(channel)
        held = await trainer.GetTrainer(trainer_pb.GetTrainerRequest(), timeout=30)
        assert (held.max_jobs, list(held.open_jobs), held.base_model) == (2, [], "")
        await channel.close()
