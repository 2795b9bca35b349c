"""Supervised fine-tuning by real trainer, registry and controller, and a client that is killed.

Inference alone is a double: nothing is sampled, and its tokens are the rows' bytes.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import podium
import pytest
from podium.sdk.connection.addresses import Addresses
from support.controlled import running_controller
from support.controlled_fixtures import fleet, registry
from support.fleet import Fleet
from support.tiny_policy import build_small_llama
from support.trainer_process import service

__all__ = ["fleet", "registry"]

STEPS = 12
_CHILD = """
import json, sys
import podium
from podium.sdk import Addresses
given = json.loads(sys.argv[1])
podium.train_sft(given["spec"], given["data"], job_id="cut", addresses=Addresses(**given["where"]))
"""


def spec(base_model: str) -> dict[str, Any]:
    return {
        "base_model": base_model,
        "training": {"learning_rate": 0.02, "lora": {"rank": 4}, "dtype": "float32"},
        "sft": {"epochs": 4, "batch_size": 4, "validate_every_steps": 5},
        "recovery_timeout_seconds": 60,
        "seed": 5,
    }


def rows(folder: Path) -> Path:
    """Twelve words and their opposites."""
    pairs = ["hot cold", "big small", "up down", "old new", "wet dry", "fast slow"]
    path = folder / "train.jsonl"
    with path.open("w") as file:
        for pair in [*pairs, *(" ".join(reversed(each.split())) for each in pairs)]:
            word, opposite = pair.split()
            said = [
                {"role": "user", "content": word},
                {"role": "assistant", "content": opposite},
            ]
            file.write(json.dumps({"messages": said}) + "\n")
    return path


@pytest.fixture
async def addresses(fleet: Fleet, tmp_path: Path) -> AsyncIterator[Addresses]:
    """Where the services are; the trainer is a process of its own."""
    fleet.inference.base_model = str(build_small_llama(tmp_path / "model", vocab_size=300))
    environment = {
        "PODIUM_TRAINER_REGISTRY_ADDRESS": fleet.registry.address,
        "PODIUM_TRAINER_THREADS": "1",
    }
    async with (
        service("trainer", tmp_path / "trainer.log", environment) as trainer,
        running_controller(fleet, trainer_address=trainer.address) as client,
    ):
        yield Addresses(
            controller=client.address,
            registry=fleet.registry.address,
            inference=fleet.inference.address,
            rollout="",
            judge="",
        )


async def adapter(client: podium.AsyncClient, job_id: str, folder: Path) -> bytes:
    version = await client.checkpoints.get(job_id, STEPS)
    await client.checkpoints.download(version, folder, "adapter/")
    return (folder / "adapter_model.safetensors").read_bytes()


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_client_that_is_killed_goes_on_bit_for_bit(
    fleet: Fleet, addresses: Addresses, tmp_path: Path
) -> None:
    wanted = spec(fleet.inference.base_model)
    data = rows(tmp_path)
    async with podium.AsyncClient(addresses) as client:
        alone = await client.train_sft(wanted, data, job_id="alone", progress=False)
        losses = [alone.losses[step] for step in range(1, STEPS + 1)]
        assert losses[-1] < 0.8 * losses[0], losses

        names = ("controller", "registry", "inference", "rollout", "judge")
        where = {name: asdict(addresses)[name] for name in names}
        given = json.dumps({"spec": wanted, "data": str(data), "where": where})
        hold = fleet.hold("load:begin", "cut@4")
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", _CHILD, given)
        try:
            await hold.reached()
        finally:
            child.send_signal(signal.SIGKILL)
            await child.wait()
        hold.release()
        cut = await client.train_sft(wanted, data, job_id="cut", progress=False)
        assert cut.losses == alone.losses
        one, other = tmp_path / "alone", tmp_path / "cut"
        assert await adapter(client, "alone", one) == await adapter(client, "cut", other)


@pytest.mark.timeout(300)
async def test_the_loss_of_rows_that_are_held_out_is_told_by_version(
    fleet: Fleet, addresses: Addresses, tmp_path: Path
) -> None:
    data = rows(tmp_path)
    async with podium.AsyncClient(addresses) as client:
        run = await client.train_sft(
            spec(fleet.inference.base_model), data, heldout=data, job_id="held", progress=False
        )
        assert sorted(run.heldout_losses) == [1, 5, 10, 12]
        # They are the rows that train, so this is how well they are known.
        assert run.heldout_losses[12] < run.heldout_losses[1]
        best = await client.checkpoints.get("held", "best")
        assert best.manifest.version == run.best_version
        assert best.evaluation_metrics["val/loss"] == run.heldout_losses[run.best_version or 0]
