"""One trainer for many jobs, over gRPC and with the real registry."""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from podium.core.errors import InvalidArgumentError, ResourceExhaustedError
from podium.kit.registry_client import RegistryClient
from podium.kit.rpc import connect, rpc_errors
from podium.trainer.v1 import trainer_service_pb2 as pb
from podium.trainer.v1 import trainer_service_pb2_grpc as pb_grpc
from podium.types.v1 import spec_pb2
from support.tiny_policy import build_small_llama, step_groups
from support.trainer_process import ServiceProcess, service, step_messages

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

STEPS = 5
JOBS: dict[str, dict[str, Any]] = {
    "one": {"lora": {"rank": 4}, "loss": {"kl_coefficient": 0.1}},
    "two": {"lora": {"rank": 8, "alpha": 4}, "gradient_checkpointing": True},
    "three": {"lora": {"rank": 2, "target_modules": ["q_proj", "o_proj"]}},
    "four": {"lora": {"rank": 4, "alpha": 32}, "mini_batches": 2},
}
PROJECTS = {"one": "red", "two": "red", "three": "red", "four": "blue"}


class Setting:
    """A registry, a model, and where to write."""

    def __init__(self, registry: ServiceProcess, folder: Path) -> None:
        self.registry, self.folder = registry, folder
        self.model = build_small_llama(folder / "model")

    def trainer(self, name: str, max_jobs: int) -> Any:
        environment = {
            "PODIUM_TRAINER_REGISTRY_ADDRESS": self.registry.address,
            "PODIUM_TRAINER_THREADS": "1",
            "PODIUM_TRAINER_ROW_TOKENS": "96",
            "PODIUM_TRAINER_MAX_JOBS": str(max_jobs),
            "PODIUM_TRAINER_IDLE_SECONDS": "1",
        }
        return service("trainer", self.folder / f"{name}.log", environment)

    def opening(self, job: str, prefix: str = "", **changes: Any) -> pb.OpenRequest:
        training = spec_pb2.TrainingSpec(
            steps=STEPS, learning_rate=1e-2, warmup_steps=2, **JOBS.get(job, JOBS["one"])
        )
        request = pb.OpenRequest(
            job_id=f"{prefix}{job}",
            base_model=str(self.model),
            training=training,
            seed=len(job),
            project=PROJECTS.get(job),
        )
        request.MergeFrom(pb.OpenRequest(**changes))
        return request

    async def versions(self, job_id: str) -> dict[int, dict[str, str]]:
        """Digests of the files of each version that there is."""
        client = RegistryClient(self.registry.address)
        try:
            found = {}
            for step in range(STEPS + 1):
                with_files = await client.get_version(job_id, step)
                found[step] = {it.path: it.digest for it in with_files.manifest.files}
            return found
        finally:
            await client.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def setting(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Setting]:
    folder = tmp_path_factory.mktemp("shared")
    data = {"PODIUM_REGISTRY_DATA_DIR": str(folder / "data")}
    async with service("registry", folder / "registry.log", data) as registry:
        yield Setting(registry, folder)


async def goes_on(
    process: ServiceProcess,
    setting: Setting,
    job: str,
    prefix: str = "",
    saved: dict[str, int] | None = None,
) -> None:
    """From the job's last version to its end; `saved` is told each version."""
    saved = saved if saved is not None else {}
    name = f"{prefix}{job}"
    async with connect(process.address) as channel:
        stub: pb_grpc.TrainerServiceAsyncStub = pb_grpc.TrainerServiceStub(channel)
        at = saved.get(name)
        changes = {} if at is None else {"resume_version": at}
        opened = await stub.Open(setting.opening(job, prefix, **changes), timeout=300)
        assert opened.step == (at or 0)
        for step in range(opened.step, STEPS + 1):
            if step > opened.step:
                groups = step_groups(step + len(job), groups=2)
                await stub.Step(step_messages(name, step, groups), timeout=300)
            if step != at:
                await stub.Save(pb.SaveRequest(job_id=name, step=step), timeout=300)
                saved[name] = step


async def metrics(process: ServiceProcess) -> str:
    url = f"http://127.0.0.1:{process.metrics_port}/metrics"
    return await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())


@pytest.mark.long
async def test_a_killed_trainer_of_four_jobs_ends_each_as_it_is_alone(setting: Setting) -> None:
    async with setting.trainer("lone", 1) as lone:
        for job in JOBS:
            await goes_on(lone, setting, job, "lone-")
            async with connect(lone.address) as channel:
                stub: pb_grpc.TrainerServiceAsyncStub = pb_grpc.TrainerServiceStub(channel)
                await stub.Close(pb.CloseRequest(job_id=f"lone-{job}"))
    saved: dict[str, int] = {}
    killed = 0
    # At a version of whichever job comes to it first, the others wherever they are.
    for life, ends_at in enumerate((1, 3, None)):
        async with setting.trainer(f"life-{life}", 4) as process:
            jobs = [asyncio.create_task(goes_on(process, setting, job, "", saved)) for job in JOBS]
            while ends_at is not None and max(saved.values(), default=0) < ends_at:
                await asyncio.sleep(0.01)
            if ends_at is None:
                await asyncio.gather(*jobs)
                assert await process.terminate() == 0
                continue
            await process.kill()
            ended = await asyncio.gather(*jobs, return_exceptions=True)
            killed += sum(isinstance(it, grpc.aio.AioRpcError) for it in ended)
    # Several were in the middle each time.
    assert killed >= 4
    for job in JOBS:
        assert await setting.versions(job) == await setting.versions(f"lone-{job}")


async def test_what_it_holds_and_refuses_is_told(setting: Setting) -> None:
    async with setting.trainer("told", 2) as process, connect(process.address) as channel:
        stub: pb_grpc.TrainerServiceAsyncStub = pb_grpc.TrainerServiceStub(channel)
        empty = await stub.GetTrainer(pb.GetTrainerRequest())
        assert (empty.base_model, empty.max_jobs, list(empty.open_jobs)) == ("", 2, [])
        with pytest.raises(InvalidArgumentError, match="project"), rpc_errors("trainer"):
            await stub.Open(setting.opening("one", project="No Name"))
        for job in ("b", "a"):
            await stub.Open(setting.opening(job, "told-"), timeout=120)
        held = await stub.GetTrainer(pb.GetTrainerRequest())
        assert held == pb.GetTrainerResponse(
            base_model=str(setting.model), max_jobs=2, open_jobs=["told-b", "told-a"]
        )
        with pytest.raises(ResourceExhaustedError) as refused, rpc_errors("trainer"):
            await stub.Open(setting.opening("c", "told-"), timeout=120)
        assert refused.value.reason == "TRAINER_BUSY"
        assert refused.value.metadata["held"] == "slots"
        assert refused.value.metadata["job_id"] == "told-b,told-a"
        await stub.Close(pb.CloseRequest(job_id="told-b"))
        await stub.Open(setting.opening("c", "told-"), timeout=120)
        page = await metrics(process)
        assert 'job_id="told-b"' not in page
        assert 'podium_trainer_step{job_id="told-c"} 0.0' in page
        assert "podium_trainer_open_jobs 2.0" in page
        assert "podium_trainer_wait_duration_seconds_count 3.0" in page
        # What nobody calls goes to the registry, and comes back with the next call.
        await stub.Save(pb.SaveRequest(job_id="told-c", step=0), timeout=60)
        while "podium_trainer_stowed_jobs 1.0" not in await metrics(process):
            await asyncio.sleep(0.1)
        taken = await stub.Step(step_messages("told-c", 1, step_groups(1)), timeout=120)
        assert taken.step == 1
        assert "podium_trainer_stowed_jobs 0.0" in await metrics(process)
        assert await process.terminate() == 0


async def test_several_processes_share_no_trainer(tmp_path: Path) -> None:
    """Said before torch is loaded, by each of them."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "podium_trainer",
        env={"PODIUM_TRAINER_MAX_JOBS": "3", "WORLD_SIZE": "2", "RANK": "1"},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode == 2
    assert said.decode() == (
        "PODIUM_TRAINER_MAX_JOBS: got 3 with 2 processes, over which the base model is sharded "
        "with the job's adapter; allowed is 1\n"
    )
