"""A rollout service of several processes: one takes the calls, each worker runs whole groups."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from podium.core.errors import (
    InvalidArgumentError,
    NotFoundError,
    PodiumError,
    RequestCancelledError,
    ResourceExhaustedError,
    UnavailableError,
)
from podium.environments.serving.convert import scenario_to_pb
from podium.environments.tic_tac_toe import TicTacToe
from podium.kit.rpc import connect, rpc_errors
from podium.rollout.v1 import rollout_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2_grpc
from podium.types.v1 import trajectory_pb2
from podium_rollout.adapters.workers import Workers
from support.process_tree import descendants, gone
from support.processes import free_port, wait_for_port
from support.rollout import PolicyDouble, group_request, serve_inference
from support.rollout_service import collect, rollout
from support.waiting import eventually

if TYPE_CHECKING:
    from support.rollout_service import Stub

_SERIES = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass
class Service:
    """A running one, of two workers."""

    stub: Stub
    process: subprocess.Popen[bytes]
    metrics_port: int

    @property
    def workers(self) -> list[int]:
        return descendants(self.process.pid)

    async def by_worker(self, name: str) -> Counter[str]:
        """The sums of a series, by worker; the service's own have none."""
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60)
        answer.raise_for_status()
        found: Counter[str] = Counter()
        for series, labels, value in _SERIES.findall(answer.text):
            if series == name:
                found[dict(_LABEL.findall(labels)).get("worker", "")] += float(value)
        return found


@asynccontextmanager
async def serving(inference: str, **settings: object) -> AsyncIterator[Service]:
    port, metrics_port = free_port(), free_port()
    told = {
        "WORKERS": 2,
        "PORT": port,
        "HEALTH_PORT": 0,
        "METRICS_PORT": metrics_port,
        "INFERENCE_ADDRESS": inference,
        **settings,
    }
    variables = {f"PODIUM_ROLLOUT_{name}": str(value) for name, value in told.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "podium_rollout"], env={**os.environ, **variables}
    )
    try:
        await wait_for_port(port, process)
        async with connect(f"127.0.0.1:{port}") as channel:
            stub: Stub = rollout_service_pb2_grpc.RolloutServiceStub(channel)
            yield Service(stub, process, metrics_port)
    finally:
        left = descendants(process.pid) if process.poll() is None else []
        process.kill()
        process.wait()
        await gone(left, within=60)


def game(number: int, attempts: int = 2) -> pb.CollectGroupRequest:
    request = group_request(attempts, max_turns=4)
    request.group_id = f"job/s1/g{number}"
    request.environment.name = "tic_tac_toe"
    request.scenario.CopyFrom(scenario_to_pb(TicTacToe().scenarios("train")[number], "train"))
    return request


def comparable(trajectory: trajectory_pb2.Trajectory) -> trajectory_pb2.Trajectory:
    for name in ("start_time", "end_time", "trace_id", "root_span_id"):
        trajectory.ClearField(name)
    for history in trajectory.histories:
        for span in history.tokens.spans:
            span.request_id = ""
    return trajectory


async def all_of(stub: Stub, requests: list[pb.CollectGroupRequest]) -> list[object]:
    groups = await asyncio.gather(*(collect(stub, each) for each in requests))
    return sorted((comparable(t) for group in groups for t in group), key=lambda t: t.id)


async def test_two_workers_give_what_one_process_gives_and_their_metrics_add_up() -> None:
    requests = [game(number) for number in range(6)]
    async with serve_inference(PolicyDouble(otherwise="5")) as inference:
        async with rollout(inference) as stub:
            alone = await all_of(stub, requests)
        async with serving(inference) as service:
            assert await all_of(service.stub, requests) == alone
            ran = await service.by_worker("podium_rollout_episodes_total")
            # Who is less busy gets the next group: of six of them each has some.
            assert ran.keys() == {"0", "1"}
            assert sum(ran.values()) == 12
            # A call is counted once, where it comes in.
            taken = await service.by_worker("podium_grpc_server_handled_total")
            assert taken == {"": 6}
            listed = await service.stub.ListScenarios(
                pb.ListScenariosRequest(environment=requests[0].environment, split="train")
            )
            assert listed.scenarios[3] == game(3).scenario
            told = await service.stub.ListEnvironments(pb.ListEnvironmentsRequest())
            assert told.environments
            assert told.workers == 2


async def test_what_a_worker_refuses_is_refused_in_its_words() -> None:
    wrong = {"environment": game(0), "config": game(0), "pool": game(0), "contract": game(0)}
    wrong["environment"].environment.name = "chess"
    wrong["config"].environment.config.update({"mistake": 1})
    wrong["pool"].pool = "large"
    wrong["contract"].attempts = 0
    async with serve_inference(PolicyDouble()) as inference:
        async with rollout(inference) as stub:
            alone = {name: await refusal(stub, request) for name, request in wrong.items()}
        async with serving(inference) as service:
            found = {name: await refusal(service.stub, request) for name, request in wrong.items()}
    assert found == alone
    assert [found[name][0] for name in wrong] == [
        NotFoundError,
        *[InvalidArgumentError] * 3,
    ]


async def refusal(stub: Stub, request: pb.CollectGroupRequest) -> tuple[type, str, object]:
    with pytest.raises(PodiumError) as caught:
        await collect(stub, request)
    return type(caught.value), str(caught.value), getattr(caught.value, "violations", ())


async def collected_when_asked_again(
    stub: Stub, request: pb.CollectGroupRequest
) -> list[trajectory_pb2.Trajectory]:
    """As the controller does: a worker may take a group in the moment in which it dies."""
    while True:
        try:
            return await collect(stub, request)
        except UnavailableError as error:
            assert "the worker process" in error.message  # noqa: PT017 - the one excuse
            await asyncio.sleep(0.1)


async def takes_calls(stub: Stub) -> bool:
    try:
        with rpc_errors("rollout"):
            await stub.ListEnvironments(pb.ListEnvironmentsRequest(), timeout=60)
    # One that comes as the server ends is cancelled by it, or finds nobody.
    except (UnavailableError, RequestCancelledError):
        return False
    return True


async def test_groups_are_bounded_over_all_workers() -> None:
    policy = PolicyDouble(otherwise="hold")
    async with serve_inference(policy) as inference, serving(inference, MAX_GROUPS=2) as service:
        tasks = [asyncio.create_task(collect(service.stub, game(n, 1))) for n in range(2)]
        await eventually(lambda: policy.held == 2)
        with pytest.raises(ResourceExhaustedError, match="2 groups are being collected") as full:
            await collect(service.stub, game(2))
        assert full.value.reason == "TOO_MANY_GROUPS"
        assert await service.by_worker("podium_rollout_groups_in_flight") == {"": 0, "0": 1, "1": 1}
        # A caller who leaves ends the group in its worker.
        tasks[0].cancel()
        await eventually(lambda: policy.aborted == 1)
        policy.otherwise = "5"
        await collect(service.stub, game(2))
        policy.release.set()
        assert len(await tasks[1]) == 1


async def test_a_worker_that_dies_takes_its_own_groups_alone_and_comes_back() -> None:
    policy = PolicyDouble(otherwise="hold")
    async with serve_inference(policy) as inference, serving(inference) as service:
        before = service.workers
        tasks = [asyncio.create_task(collect(service.stub, game(n, 1))) for n in range(2)]
        await eventually(lambda: policy.held == 2)
        os.kill(before[0], signal.SIGKILL)
        (lost,), (still,) = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(UnavailableError, match="the worker process"):
            await lost
        # The other takes calls, and the next group too.
        policy.otherwise = "5"
        assert len(await collected_when_asked_again(service.stub, game(2))) == 2
        policy.release.set()
        assert len(await still) == 1
        await eventually(lambda: len(service.workers) == 2 and service.workers != before)
        assert (await service.by_worker("podium_rollout_workers_died_total"))[""] == 1
        while len(ran := await service.by_worker("podium_rollout_groups_in_flight")) < 3:
            await asyncio.sleep(0.1)
        assert set(ran.values()) == {0}
        assert len(await all_of(service.stub, [game(3), game(4)])) == 4


async def test_a_drain_lets_groups_end_in_their_workers() -> None:
    policy = PolicyDouble(otherwise="hold")
    async with serve_inference(policy) as inference, serving(inference) as service:
        task = asyncio.create_task(collect(service.stub, game(0)))
        await eventually(lambda: policy.held == 2)
        workers = service.workers
        service.process.send_signal(signal.SIGTERM)
        while await takes_calls(service.stub):
            await asyncio.sleep(0.1)
        policy.otherwise = "5"
        policy.release.set()
        assert len(await task) == 2
        assert await asyncio.to_thread(service.process.wait, 60) == 0
        await gone(workers, within=60)


async def test_workers_end_with_a_service_that_is_killed() -> None:
    async with serve_inference(PolicyDouble()) as inference, serving(inference) as service:
        workers = service.workers
        assert len(workers) == 2
        service.process.kill()
        await gone(workers, within=60)


async def test_a_service_whose_workers_cannot_start_does_not() -> None:
    told: list[bool] = []

    def command(socket: Path) -> list[str]:
        return [sys.executable, "-c", "raise SystemExit(3)"]

    with pytest.raises(UnavailableError, match=r"worker \d ended with status 3") as caught:
        async with Workers(2, told.append, command).running():
            pass
    assert caught.value.reason == "WORKER_FAILED"
    assert told == []
    with pytest.raises(UnavailableError) as none, Workers(1).least_busy(1):
        pass
    assert none.value.reason == "NO_WORKER"
