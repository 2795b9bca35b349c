"""Several processes train as one: T12 and T17 over gloo, another world size, a lost process."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
import torch
import torch.distributed.checkpoint as dcp
from podium.kit.deltas import apply_delta
from podium.kit.registry_client import RegistryClient
from podium.kit.rpc import connect
from podium.trainer.v1 import trainer_service_pb2 as pb
from podium.trainer.v1 import trainer_service_pb2_grpc as pb_grpc
from podium.types.v1 import spec_pb2
from safetensors.torch import load_file
from support.full import full, long
from support.tiny_policy import build_small_llama, step_groups
from support.trainer_process import ServiceProcess, service, step_messages
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Setting:
    """A registry, a model, and somewhere to write."""

    registry: ServiceProcess
    model: Path
    folder: Path

    def environment(self) -> dict[str, str]:
        return {
            "PODIUM_TRAINER_REGISTRY_ADDRESS": self.registry.address,
            # Two groups do not fit: there are rows to deal.
            "PODIUM_TRAINER_ROW_TOKENS": "110",
            "PODIUM_TRAINER_THREADS": "1",
            # A bfloat16 job computes in it, as it does on a GPU.
            "PODIUM_TRAINER_BFLOAT16": "native",
        }

    async def pull(self, job_id: str, version: int) -> Path:
        """The version's files."""
        client = RegistryClient(self.registry.address)
        target = self.folder / f"{job_id}-{version}"
        if not target.exists():
            await client.pull(job_id, version, target)
        await client.close()
        return target

    async def weights(self, job_id: str, version: int) -> dict[str, torch.Tensor]:
        """What the version's shards or adapter hold in float32."""
        target = await self.pull(job_id, version)
        if (target / "adapter").exists():
            return load_file(target / "adapter" / "adapter_model.safetensors")
        return {
            name.removeprefix("weights."): tensor
            for name, tensor in await asyncio.to_thread(all_shards, target / "state" / "shards")
            if name.startswith("weights.")
        }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def setting(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Setting]:
    folder = tmp_path_factory.mktemp("ranks")
    model = build_small_llama(folder / "model")
    data = {"PODIUM_REGISTRY_DATA_DIR": str(folder / "data")}
    async with service("registry", folder / "registry.log", data) as registry:
        yield Setting(registry, model, folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alone(setting: Setting) -> AsyncIterator[ServiceProcess]:
    """A trainer of one process."""
    log = setting.folder / "alone.log"
    async with service("trainer", log, setting.environment()) as process:
        yield process
        await process.terminate()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(setting: Setting) -> AsyncIterator[ServiceProcess]:
    """A trainer of two processes."""
    log = setting.folder / "pair.log"
    async with service("trainer", log, setting.environment(), processes=2) as process:
        yield process
        if process.process.poll() is None:
            await process.terminate()


def all_shards(folder: Path) -> list[tuple[str, torch.Tensor]]:
    """The tensors of all processes' files, put together by torch's own reader."""
    reader = dcp.HuggingFaceStorageReader(str(folder))
    sizes = {name: it.size for name, it in reader.read_metadata().state_dict_metadata.items()}
    tensors = {name: torch.zeros(size) for name, size in sizes.items()}
    dcp.load(tensors, storage_reader=dcp.HuggingFaceStorageReader(str(folder)), no_dist=True)
    return list(tensors.items())


async def train(
    process: ServiceProcess,
    setting: Setting,
    job_id: str,
    training: spec_pb2.TrainingSpec,
    steps: Sequence[int],
    *,
    groups: int = 3,
) -> list[dict[str, float]]:
    """Opens the job at its last version, takes the steps, saves each, and closes it."""
    metrics = []
    async with connect(process.address) as channel:
        stub: pb_grpc.TrainerServiceAsyncStub = pb_grpc.TrainerServiceStub(channel)
        resume = None if steps[0] == 1 else steps[0] - 1
        await stub.Open(
            pb.OpenRequest(
                job_id=job_id,
                base_model=str(setting.model),
                training=training,
                seed=5,
                resume_version=resume,
            ),
            timeout=120,
        )
        for step in steps:
            messages = step_messages(job_id, step, step_groups(step, groups=groups, length=28))
            metrics.append(dict((await stub.Step(messages, timeout=120)).metrics))
            await stub.Save(pb.SaveRequest(job_id=job_id, step=step), timeout=60)
        await stub.Close(pb.CloseRequest(job_id=job_id), timeout=60)
    return metrics


def assert_same(
    one: dict[str, torch.Tensor], two: dict[str, torch.Tensor], start: dict[str, torch.Tensor]
) -> None:
    """Both moved from `start` by the same: the difference's norm is 1e-4 of the move's.

    Adam divides by a gradient's own size, so what is rounded in the smallest moves as far as the
    largest: by 2e-5 on a processor with AVX-512.
    """
    assert one.keys() == two.keys() == start.keys()
    moved = math.sqrt(sum(float((one[name] - start[name]).square().sum()) for name in one))
    apart = math.sqrt(sum(float((one[name] - two[name]).square().sum()) for name in one))
    assert moved > 1e-2
    assert apart <= 1e-4 * moved


SPECS: dict[str, dict[str, Any]] = {
    "lora": {
        "lora": spec_pb2.LoraSpec(rank=4),
        "loss": {"kl_coefficient": 0.05},
        "gradient_checkpointing": True,
    },
    "full": {"trainable": "TRAINABLE_KIND_FULL", "loss": {"kl_coefficient": 0.05}},
}


def spec(name: str, dtype: str = "FLOAT32") -> spec_pb2.TrainingSpec:
    return spec_pb2.TrainingSpec(
        steps=4, learning_rate=5e-3, warmup_steps=2, dtype=f"COMPUTE_DTYPE_{dtype}", **SPECS[name]
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("dtype", ["FLOAT32", long("BFLOAT16")])
@pytest.mark.parametrize("name", SPECS)
async def test_t12_two_processes_take_the_step_of_one(
    setting: Setting, alone: ServiceProcess, pair: ServiceProcess, name: str, dtype: str
) -> None:
    training = spec(name, dtype)
    jobs = [f"{name}-{dtype.lower()}-{size}" for size in (1, 2)]
    numbers = [
        await train(process, setting, job, training, [1, 2])
        for process, job in zip((alone, pair), jobs, strict=True)
    ]
    for one, two in zip(*numbers, strict=True):
        assert two["rows"] == one["rows"] >= 3
        for key in ("loss", "grad_norm", "entropy", "ratio_mean", "tokens_trained"):
            assert two[key] == pytest.approx(one[key], rel=1e-5, abs=1e-7), key
    first, second = [await setting.weights(job, 1) for job in jobs]
    one, two = [await setting.weights(job, 2) for job in jobs]
    assert_same(one, two, first)
    assert second.keys() == first.keys()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [full("full", "FLOAT32"), full("full", "BFLOAT16"), long("lora", "BFLOAT16")],
)
async def test_t17_a_job_resumes_on_another_world_size(
    setting: Setting, alone: ServiceProcess, pair: ServiceProcess, name: str, dtype: str
) -> None:
    """With one group there is one row: the second process has none that counts."""
    training = spec(name, dtype)
    whole, moved = (f"{name}-{dtype.lower()}-{what}" for what in ("whole", "moved"))
    await train(alone, setting, whole, training, [1, 2, 3, 4], groups=1)
    log = setting.folder / f"{moved}.log"
    async with service("trainer", log, setting.environment(), machines=2) as machines:
        for step, process in enumerate((pair, alone, machines, pair), 1):
            (metrics,) = await train(process, setting, moved, training, [step], groups=1)
            assert metrics["rows"] == 1
        await machines.terminate()
    assert_same(
        await setting.weights(whole, 4),
        await setting.weights(moved, 4),
        await setting.weights(whole, 1),
    )


@pytest.mark.timeout(400)
async def test_every_process_stores_its_own_part_of_whole_weights(
    setting: Setting, pair: ServiceProcess
) -> None:
    await train(pair, setting, "parts", spec("full"), [1, 2])
    first, second = [await setting.pull("parts", version) for version in (1, 2)]
    shards = sorted((second / "state" / "shards").glob("*.safetensors"))
    assert [path.name[:11] for path in shards] == ["shard-00001", "shard-00002"]
    sizes = [path.stat().st_size for path in shards]
    assert max(sizes) < 0.6 * sum(sizes)
    models = list((second / "model").glob("*.safetensors"))
    assert len(models) == 2
    # What serves finds the parts by themselves, and as one model.
    masters = await setting.weights("parts", 2)
    served = AutoModelForCausalLM.from_pretrained(second / "model").state_dict()
    for name, master in masters.items():
        assert torch.equal(served[name], master.to(served[name].dtype)), name
    assert not (first / "delta").exists()
    deltas = sorted((second / "delta").iterdir())
    assert len(deltas) == 2
    apply_delta(first / "model", deltas, setting.folder / "changed")
    for path in models:
        one, two = load_file(path), load_file(setting.folder / "changed" / path.name)
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.timeout(400)
async def test_a_lost_process_ends_the_trainer_and_the_job_goes_on(
    setting: Setting, alone: ServiceProcess, pair: ServiceProcess
) -> None:
    """The last of the module: it ends the pair."""
    training = spec("lora")
    await train(pair, setting, "lost", training, [1])
    (follower,) = await asyncio.to_thread(followers, pair.process.pid)
    os.kill(follower, signal.SIGKILL)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await train(pair, setting, "lost", training, [2])
    assert caught.value.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)
    assert await pair.ended() != 0
    # By one process alone, of what two have stored.
    (metrics,) = await train(alone, setting, "lost", training, [2])
    assert metrics["tokens_trained"] > 0


def followers(launcher: int) -> list[int]:
    """The processes of torchrun that do not lead."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"\0RANK=1\0" in Path(f"/proc/{child}/environ").read_bytes()
    ]
