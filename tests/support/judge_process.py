"""The judge as a real process over real gRPC, its model a scripted server over real HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from podium.judge.v1 import judge_service_pb2, judge_service_pb2_grpc
from podium.kit.rpc import connect, rpc_errors
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.fake_judge import FakeJudge, fake_judge
from support.processes import free_port

RULER = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER)


@dataclass
class Process:
    child: subprocess.Popen[bytes]
    address: str
    metrics: str
    model: FakeJudge
    log: Path

    def exposition(self) -> str:
        with urllib.request.urlopen(self.metrics, timeout=60) as response:
            return str(response.read().decode())

    def metric(self, line: str) -> float:
        rows = self.exposition().splitlines()
        values = [row.rpartition(" ")[2] for row in rows if row.startswith(line + " ")]
        return float(values[0]) if values else 0.0


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    port, health, metrics = (free_port() for _ in range(3))
    log = tmp_path_factory.mktemp("judge") / "judge.log"
    with fake_judge() as model, log.open("wb") as stream:
        environment = {
            "PODIUM_JUDGE_PORT": str(port),
            "PODIUM_JUDGE_HEALTH_PORT": str(health),
            "PODIUM_JUDGE_METRICS_PORT": str(metrics),
            "PODIUM_JUDGE_BASE_URL": model.base_url,
            "PODIUM_JUDGE_KEY": "a-key",
            "PODIUM_JUDGE_REQUEST_ATTEMPTS": "3",
            "PODIUM_JUDGE_REQUEST_TIMEOUT_SECONDS": "60",
            "PODIUM_JUDGE_BACKOFF_SECONDS": "0.01",
            "PODIUM_JUDGE_PRICES": '{"priced": [1000, 3000]}',
        }
        child = subprocess.Popen(
            [sys.executable, "-m", "podium_judge"],
            env={**os.environ, **environment},
            stdout=stream,
            stderr=stream,
        )
        try:
            yield Process(
                child, f"127.0.0.1:{port}", f"http://127.0.0.1:{metrics}/metrics", model, log
            )
        finally:
            child.send_signal(signal.SIGTERM)
            try:
                code = child.wait(120)
            finally:
                child.kill()
        assert code == 0, log.read_text()


@pytest.fixture
async def stub(process: Process) -> AsyncIterator[judge_service_pb2_grpc.JudgeServiceAsyncStub]:
    channel = connect(process.address)
    try:
        await asyncio.wait_for(channel.channel_ready(), 120)
        yield judge_service_pb2_grpc.JudgeServiceStub(channel)
    finally:
        await channel.close()


def group(*texts: str) -> trajectory_pb2.Group:
    made = trajectory_pb2.Group(id="job/s1/g0", job_id="job", step=1)
    for number, text in enumerate(texts):
        trajectory = made.trajectories.add(
            id=f"{made.id}/t{number}",
            group_id=made.id,
            scenario_id="s",
            attempt=number,
            stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
            environment_reward=float(number),
        )
        history = trajectory.histories.add()
        history.messages.add(role=trajectory_pb2.ROLE_USER, content="Say something long.")
        history.messages.add(role=trajectory_pb2.ROLE_ASSISTANT, content=text)
    return made


async def ask(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub,
    attempts: trajectory_pb2.Group,
    *scorers: spec_pb2.Scorer,
    **options: Any,
) -> judge_service_pb2.ScoreGroupResponse:
    request = judge_service_pb2.ScoreGroupRequest(
        group=attempts, reward=spec_pb2.RewardSpec(scorers=scorers)
    )
    with rpc_errors("judge"):
        return await stub.ScoreGroup(request, **{"timeout": 60.0, **options})
