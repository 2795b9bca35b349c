"""A shared trainer tells when a job's turn begins, before it has computed anything."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from podium.kit.rpc import Server, ServerSettings, connect
from podium.trainer.v1 import trainer_service_pb2 as pb
from podium.trainer.v1 import trainer_service_pb2_grpc as pb_grpc
from podium_trainer.adapters.team import Team
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.session import Compute
from podium_trainer.servicer import TrainerServicer
from podium_trainer.worker import Worker
from support.kept_versions import KeptVersions
from support.tiny_policy import step_groups, training_spec
from support.trainer_process import step_messages


async def test_a_step_hears_of_its_turn_before_it_computes(
    small_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever calls bounds the work, and not the wait for others' work."""
    team = Team(Ranks(), Compute(), shares=True)
    worker = Worker(KeptVersions(), team, threads=1, max_jobs=2)
    server = Server("trainer", ServerSettings(port=0))
    server.add(
        pb_grpc.add_TrainerServiceServicer_to_server,
        TrainerServicer(worker),
        "podium.trainer.v1.TrainerService",
    )
    await server.start()
    heard = threading.Event()
    works = team.train

    def after_it_was_heard(*arguments: Any) -> Any:
        assert heard.wait(120), "the caller did not hear that its turn began"
        return works(*arguments)

    opening = pb.OpenRequest(
        job_id="a", base_model=str(small_llama), training=training_spec(lora={"rank": 2})
    )
    try:
        async with connect(f"127.0.0.1:{server.port}") as channel:
            stub: pb_grpc.TrainerServiceAsyncStub = pb_grpc.TrainerServiceStub(channel)
            await stub.Open(opening, timeout=120)
            monkeypatch.setattr(team, "train", after_it_was_heard)
            lock = worker._computing.lock
            async with lock.hold("others", "b"):
                call = stub.Step(step_messages("a", 1, step_groups(1)), timeout=300)
                begins = asyncio.create_task(call.initial_metadata())
                while not lock._waiting:
                    await asyncio.sleep(0.01)
                assert not begins.done()
            await begins
            assert not call.done()
            heard.set()
            await call
            await worker.close("a")
    finally:
        heard.set()
        await server.stop(0)
        await worker.stop()
