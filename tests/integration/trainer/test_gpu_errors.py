"""A GPU that is not there, is full or fails, as people hear of it. The errors are torch's own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from podium.core.errors import FailedPreconditionError, UnavailableError
from podium_trainer import worker as worker_module
from podium_trainer.adapters.team import Team
from podium_trainer.learner.gpu import GpuMemoryError
from podium_trainer.learner.model import Policy
from podium_trainer.learner.network import Network
from podium_trainer.learner.parallel import Ranks, join
from podium_trainer.learner.session import Compute, JobConfig
from podium_trainer.worker import Worker
from support.tiny_policy import step_groups, training_spec

FULL = (
    "CUDA out of memory. Tried to allocate 9.27 GiB. GPU 0 has a total capacity of 79.10 GiB of"
    " which 1.50 GiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch. If"
    " reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF"
)
BROKEN = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be"


def a_worker() -> Worker:
    return Worker(cast("Any", None), Team(Ranks(), Compute()), threads=1)


def a_job(folder: Path) -> JobConfig:
    spec = training_spec(lora={"rank": 4}, dtype="COMPUTE_DTYPE_FLOAT32")
    return JobConfig("job", str(folder), spec, 0)


def fails_with(error: Exception) -> Any:
    def fails(*_: object) -> None:
        raise error

    return fails


async def test_a_step_that_a_gpu_does_not_hold_is_refused_and_leaves_the_job_as_it_was(
    small_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = a_worker()
    await worker.open(a_job(small_llama), None)
    with monkeypatch.context() as patched:
        patched.setattr(Policy, "evaluate", fails_with(torch.OutOfMemoryError(FULL)))
        with pytest.raises(FailedPreconditionError) as refused:
            await worker.step("job", 1, step_groups(1))
    assert refused.value.reason == "GPU_OUT_OF_MEMORY"
    assert "79.10 GiB" in refused.value.message
    assert "training.max_row_tokens" in refused.value.message
    assert "PYTORCH_ALLOC_CONF" not in refused.value.message
    assert (await worker.step("job", 1, step_groups(1))).step == 1
    await worker.stop()


async def test_a_gpu_that_does_not_hold_the_model_is_no_model_that_cannot_train(
    small_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = a_worker()
    with monkeypatch.context() as patched:
        patched.setattr(Network, "forward", fails_with(torch.OutOfMemoryError(FULL)))
        with pytest.raises(FailedPreconditionError) as refused:
            await worker.open(a_job(small_llama), None)
    assert refused.value.reason == "GPU_OUT_OF_MEMORY"
    await worker.open(a_job(small_llama), None)
    await worker.stop()


async def test_a_trainer_whose_gpu_failed_says_so_and_ends(
    small_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever CUDA is asked in that process fails from then on, for every job of it."""
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(worker_module.os, "_exit", ended.set_result)
    worker = a_worker()
    await worker.open(a_job(small_llama), None)
    monkeypatch.setattr(Policy, "evaluate", fails_with(torch.AcceleratorError(BROKEN)))
    with pytest.raises(UnavailableError) as lost:
        await worker.step("job", 1, step_groups(1))
    assert lost.value.reason == "GPU_FAILED"
    assert lost.value.message.endswith("an illegal memory access was encountered")
    assert await ended == 1
    await worker.stop()


@pytest.mark.parametrize(("sharded", "ends"), [(False, False), (True, True)])
def test_of_several_processes_one_that_is_full_is_out_of_step(sharded: bool, ends: bool) -> None:
    ranks = Ranks(mesh=cast("Any", object()) if sharded else None)
    team = Team(ranks, Compute())
    assert team.broken_by(GpuMemoryError("full")) is ends
    assert not team.broken_by(FailedPreconditionError("refused by all"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_trainer_that_is_to_use_a_gpu_does_not_start_without_one() -> None:
    """It would train on the CPU, a hundred times as slow, and nobody would be told."""
    started = subprocess.run(
        [sys.executable, "-m", "podium_trainer"],
        env={**os.environ, "PODIUM_TRAINER_DEVICE": "cuda"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert started.returncode == 2, started.stderr
    assert "PODIUM_TRAINER_DEVICE: got cuda, and torch can use no GPU here: " in started.stderr


def test_a_trainer_that_is_to_use_the_cpu_leaves_a_gpu_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert join(60, device="cpu").device == torch.device("cpu")
