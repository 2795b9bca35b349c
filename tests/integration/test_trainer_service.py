"""The trainer over gRPC, with the real registry: every method, every failure it names."""

from __future__ import annotations

import asyncio
import signal
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from podium.core.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from podium.kit.registry_client import RegistryClient
from podium.kit.rpc import connect, rpc_errors
from podium.trainer.v1 import trainer_service_pb2 as pb
from podium.trainer.v1 import trainer_service_pb2_grpc as pb_grpc
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.families import build_mixture
from support.tiny_policy import build_small_llama, group, trajectory
from support.trainer_process import ServiceProcess, service, step_messages

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def small_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small_llama(tmp_path_factory.mktemp("small-llama"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def registry(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("registry")
    async with service(
        "registry", folder / "log", {"PODIUM_REGISTRY_DATA_DIR": str(folder / "data")}
    ) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(
    registry: ServiceProcess, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ServiceProcess]:
    log = tmp_path_factory.mktemp("trainer") / "log"
    environment = {
        "PODIUM_TRAINER_REGISTRY_ADDRESS": registry.address,
        "PODIUM_TRAINER_THREADS": "1",
        "PODIUM_TRAINER_ROW_TOKENS": "16",
    }
    async with service("trainer", log, environment) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def trainer(process: ServiceProcess) -> AsyncIterator[pb_grpc.TrainerServiceAsyncStub]:
    channel = connect(process.address)
    stub: pb_grpc.TrainerServiceAsyncStub = pb_grpc.TrainerServiceStub(channel)
    yield stub
    for job_id in ("job-a", "job-b"):
        await stub.Close(pb.CloseRequest(job_id=job_id))
    await channel.close()


@pytest_asyncio.fixture(loop_scope="module")
async def checkpoints(registry: ServiceProcess) -> AsyncIterator[RegistryClient]:
    client = RegistryClient(registry.address)
    yield client
    await client.close()


def open_request(model: Path, **changes: Any) -> pb.OpenRequest:
    training = spec_pb2.TrainingSpec(
        steps=4, learning_rate=1e-2, lora=spec_pb2.LoraSpec(rank=4, alpha=8)
    )
    return pb.OpenRequest(
        **{"job_id": "job-a", "base_model": str(model), "training": training, **changes}
    )


def a_group(name: str, rewards: tuple[float, ...] = (1.0, 0.0)) -> trajectory_pb2.Group:
    return group(
        name,
        *(
            trajectory(f"{name}/t{i}", reward, [1, 2, 3, 10 + i, 20 + i], [(3, 2)])
            for i, reward in enumerate(rewards)
        ),
    )


async def take(
    stub: pb_grpc.TrainerServiceAsyncStub,
    step: int,
    *groups: trajectory_pb2.Group,
    job: str = "job-a",
) -> pb.StepResponse:
    with rpc_errors("trainer"):
        return await stub.Step(step_messages(job, step, groups), timeout=120)


async def scrape(process: ServiceProcess) -> str:
    url = f"http://127.0.0.1:{process.metrics_port}/metrics"
    return await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())


async def test_a_job_from_open_to_close(
    trainer: pb_grpc.TrainerServiceAsyncStub,
    checkpoints: RegistryClient,
    process: ServiceProcess,
    small_llama: Path,
) -> None:
    opened = await trainer.Open(open_request(small_llama), timeout=120)
    assert opened.step == 0
    assert list(opened.warnings) == []
    # Rank 4 on q, k, v, o, gate, up, down of two layers of hidden 64, kv 32, mlp 96.
    assert opened.trainable_parameters == 2 * 4 * (128 + 96 + 96 + 128 + 160 + 160 + 160)
    first = await trainer.Save(pb.SaveRequest(job_id="job-a", step=0), timeout=60)
    assert first.version == 0
    response = await take(trainer, 1, a_group("job-a/s1/g0"), a_group("job-a/s1/g1", (1.0, 1.0)))
    assert response.step == 1
    assert dict(response.skipped_groups) == {"job-a/s1/g1": "zero_variance"}
    numbers = response.metrics
    assert numbers["tokens_trained"] == 4
    assert (numbers["tokens_packed"], numbers["tokens_flat"]) == (5, 8)
    for name in (
        "loss",
        "grad_norm",
        "entropy",
        "clip_fraction",
        "ratio_mean",
        "logprob_difference_mean",
        "advantage_abs_mean",
        "seconds_forward",
        "seconds_backward",
        "seconds_optimizer",
    ):
        assert name in numbers
    assert "kl_reference" not in numbers
    assert numbers["learning_rate"] == 1e-2
    request = pb.SaveRequest(
        job_id="job-a", step=1, group_ids=["job-a/s1/g0"], metrics={"reward": 0.5}
    )
    saved = await trainer.Save(request, timeout=60)
    again = await trainer.Save(request, timeout=60)
    assert (saved.version, saved.manifest_digest) == (again.version, again.manifest_digest)
    version = await checkpoints.get_version("job-a", 1)
    assert version.manifest_digest == saved.manifest_digest
    assert [parent.version for parent in version.manifest.parents] == [0]
    assert list(version.manifest.group_ids) == ["job-a/s1/g0"]
    assert version.manifest.base_model_digest.startswith("sha256:")
    assert version.manifest.metrics["reward"] == 0.5
    assert version.manifest.metrics["loss"] == numbers["loss"]
    text = await scrape(process)
    assert 'podium_trainer_step{job_id="job-a"} 1.0' in text
    assert 'podium_trainer_skipped_groups_total{reason="zero_variance"}' in text
    await trainer.Close(pb.CloseRequest(job_id="job-a"))
    await trainer.Close(pb.CloseRequest(job_id="job-a"))
    assert 'job_id="job-a"' not in await scrape(process)
    with pytest.raises(FailedPreconditionError) as caught:
        await take(trainer, 2, a_group("job-a/s2/g0"))
    assert caught.value.reason == "JOB_NOT_OPEN"
    reopened = await trainer.Open(open_request(small_llama, resume_version=1), timeout=120)
    assert reopened.step == 1
    found = await trainer.Save(pb.SaveRequest(job_id="job-a", step=1), timeout=60)
    assert found.manifest_digest == saved.manifest_digest


async def test_opening_says_that_experts_stay_frozen(
    trainer: pb_grpc.TrainerServiceAsyncStub, tmp_path: Path
) -> None:
    mixture = build_mixture("qwen3_moe", tmp_path)
    opened = await trainer.Open(open_request(mixture), timeout=120)
    (warning,) = opened.warnings
    assert "are frozen: name `experts` among training.lora.target_modules" in warning


async def test_the_next_step_is_taken_while_a_version_is_on_its_way(
    trainer: pb_grpc.TrainerServiceAsyncStub,
    checkpoints: RegistryClient,
    registry: ServiceProcess,
    small_llama: Path,
) -> None:
    job = "job-c"
    await trainer.Open(open_request(small_llama, job_id=job), timeout=120)
    await trainer.Save(pb.SaveRequest(job_id=job, step=0), timeout=60)
    await take(trainer, 1, a_group(f"{job}/s1/g0"), job=job)
    registry.process.send_signal(signal.SIGSTOP)
    try:
        saving = asyncio.ensure_future(trainer.Save(pb.SaveRequest(job_id=job, step=1), timeout=60))
        await asyncio.sleep(0.5)
        taken = await take(trainer, 2, a_group(f"{job}/s2/g0"), job=job)
        assert taken.step == 2
        assert not saving.done()
    finally:
        registry.process.send_signal(signal.SIGCONT)
    assert (await saving).version == 1
    assert (await trainer.Save(pb.SaveRequest(job_id=job, step=2), timeout=60)).version == 2
    versions = [await checkpoints.get_version(job, step) for step in (1, 2)]
    assert [v.manifest.parents[0].version for v in versions] == [0, 1]
    assert versions[0].manifest.files != versions[1].manifest.files
    await trainer.Close(pb.CloseRequest(job_id=job))


async def test_a_step_with_nothing_to_train_advances(
    trainer: pb_grpc.TrainerServiceAsyncStub, checkpoints: RegistryClient, small_llama: Path
) -> None:
    await trainer.Open(open_request(small_llama, job_id="job-b"), timeout=120)
    await trainer.Save(pb.SaveRequest(job_id="job-b", step=0), timeout=60)
    response = await take(trainer, 1, a_group("job-b/s1/g0", (0.5, 0.5)), job="job-b")
    assert response.step == 1
    assert response.metrics["tokens_trained"] == 0
    assert "loss" not in response.metrics
    await trainer.Save(pb.SaveRequest(job_id="job-b", step=1), timeout=60)
    weights = [
        {
            file.path: file.digest
            for file in (await checkpoints.get_version("job-b", n)).manifest.files
        }
        for n in (0, 1)
    ]
    name = "adapter/adapter_model.safetensors"
    assert weights[0][name] == weights[1][name]
    await trainer.Close(pb.CloseRequest(job_id="job-b"))


async def test_open_refuses(
    trainer: pb_grpc.TrainerServiceAsyncStub, small_llama: Path, tmp_path: Path
) -> None:
    async def refused(request: pb.OpenRequest) -> Any:
        with pytest.raises(Exception) as caught, rpc_errors("trainer"):  # noqa: PT011
            await trainer.Open(request, timeout=120)
        return caught.value

    missing = await refused(open_request(small_llama, resume_version=77))
    assert isinstance(missing, NotFoundError)
    unknown = await refused(open_request(Path("nobody")))
    assert isinstance(unknown, NotFoundError)
    training = spec_pb2.TrainingSpec(
        steps=1, lora=spec_pb2.LoraSpec(target_modules=["q_proj", "lm_head"])
    )
    wrong = await refused(open_request(small_llama, training=training))
    assert isinstance(wrong, InvalidArgumentError)
    assert wrong.violations[0].field == "training.lora.target_modules"
    assert "lm_head" in wrong.violations[0].description
    assert "down_proj" in wrong.violations[0].description
    await trainer.Open(open_request(small_llama), timeout=120)
    busy = await refused(open_request(small_llama, job_id="job-b"))
    assert isinstance(busy, ResourceExhaustedError)
    assert (busy.reason, busy.metadata["job_id"]) == ("TRAINER_BUSY", "job-a")


async def test_step_refuses(trainer: pb_grpc.TrainerServiceAsyncStub, small_llama: Path) -> None:
    await trainer.Open(open_request(small_llama), timeout=120)
    for step in (0, 2):
        with pytest.raises((FailedPreconditionError, InvalidArgumentError)):
            await take(trainer, step, a_group("job-a/s/g0"))
    with pytest.raises(FailedPreconditionError) as caught:
        await take(trainer, 2, a_group("job-a/s/g0"))
    assert (caught.value.reason, caught.value.metadata["expected_step"]) == ("WRONG_STEP", "1")
    broken = a_group("job-a/s1/g0")
    del broken.trajectories[1].histories[0].tokens.logprobs[1:]
    with pytest.raises(InvalidArgumentError) as inconsistent:
        await take(trainer, 1, broken)
    assert inconsistent.value.reason == "INCONSISTENT_TOKEN_RECORD"
    assert "job-a/s1/g0/t1" in inconsistent.value.violations[0].field

    async def no_header() -> AsyncIterator[pb.StepRequest]:
        yield pb.StepRequest(group=a_group("g"))

    with pytest.raises(InvalidArgumentError, match="header first"), rpc_errors("trainer"):
        await trainer.Step(no_header(), timeout=60)
    with pytest.raises(FailedPreconditionError) as unsaved, rpc_errors("trainer"):
        await trainer.Save(pb.SaveRequest(job_id="job-a", step=1), timeout=60)
    assert unsaved.value.reason == "WRONG_STEP"
    # After all of it the job is where it was.
    assert (await take(trainer, 1, a_group("job-a/s1/g0"))).step == 1


async def test_a_broken_stream_takes_no_step(
    trainer: pb_grpc.TrainerServiceAsyncStub, small_llama: Path
) -> None:
    await trainer.Open(open_request(small_llama), timeout=120)
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[pb.StepRequest]:
        yield pb.StepRequest(header=pb.StepHeader(job_id="job-a", step=1))
        yield pb.StepRequest(group=a_group("job-a/s1/g0"))
        begun.set()
        await asyncio.sleep(3600)

    call = trainer.Step(endless(), timeout=60)
    waiting = asyncio.ensure_future(_outcome(call))
    await begun.wait()
    call.cancel()
    assert await waiting == "cancelled"
    opened = await trainer.Open(open_request(small_llama), timeout=120)
    assert opened.step == 0
    assert (await take(trainer, 1, a_group("job-a/s1/g0"))).step == 1


async def test_a_cancelled_step_is_taken_wholly_or_not_at_all(
    trainer: pb_grpc.TrainerServiceAsyncStub, small_llama: Path
) -> None:
    groups = [
        group(
            f"job-a/s1/g{g}",
            *(
                trajectory(
                    f"job-a/s1/g{g}/t{i}",
                    float(i % 2),
                    [g % 90, *[(7 * i + k) % 97 for k in range(300)]],
                    [(1, 300)],
                )
                for i in range(8)
            ),
        )
        for g in range(12)
    ]
    await trainer.Open(open_request(small_llama), timeout=120)
    call = trainer.Step(step_messages("job-a", 1, groups), timeout=120)
    waiting = asyncio.ensure_future(_outcome(call))
    await asyncio.sleep(0.7)
    call.cancel()
    assert await waiting == "cancelled"
    # Opening at the last published state is how a caller goes on; here that is the start.
    opened = await trainer.Open(open_request(small_llama), timeout=120)
    assert opened.step == 0
    cut = await take(trainer, 1, a_group("job-a/s1/g0"))
    await trainer.Close(pb.CloseRequest(job_id="job-a"))
    await trainer.Open(open_request(small_llama), timeout=120)
    whole = await take(trainer, 1, a_group("job-a/s1/g0"))
    assert cut.metrics["loss"] == whole.metrics["loss"]
    assert cut.metrics["grad_norm"] == whole.metrics["grad_norm"]


async def _outcome(call: Any) -> str:
    try:
        await call
    except asyncio.CancelledError:
        return "cancelled"
    return "done"
