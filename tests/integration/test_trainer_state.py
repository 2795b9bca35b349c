"""A trainer publishes weights, and stores what resumes them behind: with the real registry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from podium.core.errors import FailedPreconditionError, NotFoundError
from podium.core.version_state import has_state
from podium.kit.registry_client import RegistryClient
from podium.kit.rpc import connect, rpc_errors
from podium.trainer.v1 import trainer_service_pb2 as pb
from podium.trainer.v1 import trainer_service_pb2_grpc as pb_grpc
from podium.types.v1 import spec_pb2
from support.full import long
from support.tiny_policy import build_small_llama, group, trajectory
from support.trainer_process import ServiceProcess, service, step_messages

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

if TYPE_CHECKING:
    Stub = pb_grpc.TrainerServiceAsyncStub

BEHIND, NONE = pb.STATE_SAVING_BEHIND, pb.STATE_SAVING_NONE
TRAINED = {
    "lora": spec_pb2.TrainingSpec(
        steps=9, learning_rate=1e-2, lora=spec_pb2.LoraSpec(rank=4, alpha=8)
    ),
    "full": spec_pb2.TrainingSpec(
        steps=9, learning_rate=1e-3, trainable=spec_pb2.TRAINABLE_KIND_FULL
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def registry(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("registry")
    variables = {"PODIUM_REGISTRY_DATA_DIR": str(folder / "data")}
    async with service("registry", folder / "log", variables) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[1, long(2)])
async def trainer(
    request: pytest.FixtureRequest,
    registry: ServiceProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Stub]:
    """Of one process, and of two."""
    log = tmp_path_factory.mktemp("trainer") / "log"
    variables = {
        "PODIUM_TRAINER_REGISTRY_ADDRESS": registry.address,
        "PODIUM_TRAINER_THREADS": "1",
        "PODIUM_TRAINER_ROW_TOKENS": "16",
    }
    processes: int = request.param
    async with service("trainer", log, variables, processes=processes) as running:
        async with connect(running.address) as channel:
            yield pb_grpc.TrainerServiceStub(channel)
        await running.terminate()


@pytest_asyncio.fixture(loop_scope="module")
async def checkpoints(registry: ServiceProcess) -> AsyncIterator[RegistryClient]:
    client = RegistryClient(registry.address)
    yield client
    await client.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small_llama(tmp_path_factory.mktemp("small-llama"))


class Job:
    """A job at the trainer."""

    def __init__(self, trainer: Stub, name: str, model: Path, kind: str) -> None:
        self.trainer, self.name = trainer, name
        self._model, self._kind = model, kind

    async def open(self, version: int | None = None) -> int:
        request = pb.OpenRequest(
            job_id=self.name,
            base_model=str(self._model),
            training=TRAINED[self._kind],
            resume_version=version,
        )
        with rpc_errors("trainer"):
            return (await self.trainer.Open(request, timeout=120)).step

    async def take(self, step: int) -> None:
        # The same for every job: what two jobs come to can be compared.
        attempts = [
            trajectory(f"s{step}/t{i}", reward, [1, 2, 3 + step, 10 + i, 20 + i], [(3, 2)])
            for i, reward in enumerate((1.0, 0.0))
        ]
        messages = step_messages(self.name, step, [group(f"s{step}/g0", *attempts)])
        with rpc_errors("trainer"):
            await self.trainer.Step(messages, timeout=120)

    async def save(self, step: int, state: pb.StateSaving.ValueType) -> None:
        request = pb.SaveRequest(job_id=self.name, step=step, state=state)
        with rpc_errors("trainer"):
            await self.trainer.Save(request, timeout=60)

    async def store(self, step: int) -> None:
        with rpc_errors("trainer"):
            await self.trainer.SaveState(
                pb.SaveStateRequest(job_id=self.name, step=step), timeout=60
            )

    async def close(self) -> None:
        await self.trainer.Close(pb.CloseRequest(job_id=self.name), timeout=60)


async def digests(
    checkpoints: RegistryClient, name: str, version: int, *, state: bool = False
) -> dict[str, str]:
    found = await checkpoints.get_version(name, version)
    files = found.state_files if state else found.manifest.files
    return {it.path: it.digest for it in files if not it.path.startswith("delta/")}


@pytest.mark.parametrize("kind", ["lora", "full"])
async def test_steps_that_are_taken_again_come_to_the_same_bits(
    trainer: Stub,
    checkpoints: RegistryClient,
    model: Path,
    kind: str,
    request: pytest.FixtureRequest,
) -> None:
    mark = f"{kind}{request.node.callspec.params['trainer']}"
    whole = Job(trainer, f"whole-{mark}", model, kind)
    await whole.open()
    await whole.save(0, pb.STATE_SAVING_UNSPECIFIED)
    for step in (1, 2, 3):
        await whole.take(step)
        await whole.save(step, BEHIND)
        # The step that follows waits for no state.
    await whole.store(3)
    await whole.close()

    broken = Job(trainer, f"broken-{mark}", model, kind)
    await broken.open()
    await broken.save(0, pb.STATE_SAVING_UNSPECIFIED)
    await broken.take(1)
    await broken.save(1, BEHIND)
    await broken.store(1)
    await broken.take(2)
    await broken.save(2, NONE)
    assert not has_state(await checkpoints.get_version(broken.name, 2))
    # What is open at a version is open at it, state or not.
    assert await broken.open(2) == 2
    await broken.close()
    with pytest.raises(FailedPreconditionError) as caught:
        await broken.open(2)
    assert caught.value.reason == "STATE_NOT_STORED"

    assert await broken.open(1) == 1
    await broken.take(2)
    # Published already, it is found: of the same bytes.
    await broken.save(2, NONE)
    await broken.store(2)
    await broken.take(3)
    await broken.save(3, BEHIND)
    await broken.store(3)
    await broken.close()
    for version in (1, 2, 3):
        assert await digests(checkpoints, broken.name, version) == await digests(
            checkpoints, whole.name, version
        )
        assert await digests(checkpoints, broken.name, version, state=True) == await digests(
            checkpoints, whole.name, version, state=True
        )
    state = await digests(checkpoints, whole.name, 3, state=True)
    assert all(path.startswith("state/") for path in state)
    if kind == "lora":
        weights = await digests(checkpoints, whole.name, 3)
        served = weights["adapter/adapter_model.safetensors"]
        assert state["state/adapter_model.safetensors"] == served


@pytest.mark.parametrize("kind", ["lora", "full"])
async def test_state_that_could_not_be_stored_is_stored_when_it_is_asked_for(
    trainer: Stub,
    checkpoints: RegistryClient,
    model: Path,
    kind: str,
    request: pytest.FixtureRequest,
) -> None:
    job = Job(trainer, f"deleted-{kind}{request.node.callspec.params['trainer']}", model, kind)
    await job.open()
    # Nobody has published it: there is nothing to add state to, and the copy is kept.
    with pytest.raises(NotFoundError):
        await job.store(0)
    await job.save(0, NONE)
    await job.take(1)
    await asyncio.gather(job.store(0), job.store(0))
    assert has_state(await checkpoints.get_version(job.name, 0))
    with pytest.raises(FailedPreconditionError) as caught:
        await job.store(2)
    assert caught.value.reason == "WRONG_STEP"
    await job.close()
    with pytest.raises(FailedPreconditionError) as caught:
        await job.store(0)
    assert caught.value.reason == "JOB_NOT_OPEN"
    assert await job.open(0) == 0
    await job.store(0)
    await job.close()
