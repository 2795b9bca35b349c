"""Groups to judge, and the judge's servicer against scripted judge models."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
from podium.judge.v1 import judge_service_pb2, judge_service_pb2_grpc
from podium.kit.rpc import Server, ServerSettings
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_judge.servicer import JudgeServicer
from podium_judge.settings import Settings
from support.fake_judge import FakeJudge

QUESTION = "How many?"


def by_number(text: str) -> float:
    """What an honest judge gives: the last number that the attempt said, in tenths."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return int(lines[-1]["assistant"].split()[-1]) / 10


def said(*turns: str) -> trajectory_pb2.History:
    """A conversation: the question, then the agent's turns."""
    history = trajectory_pb2.History()
    history.messages.add(role=trajectory_pb2.ROLE_USER, content=QUESTION)
    for turn in turns:
        history.messages.add(role=trajectory_pb2.ROLE_ASSISTANT, content=turn)
    return history


def group_of(
    *attempts: str | list[trajectory_pb2.History], group: str = "job/s1/g0", job: str = "job"
) -> trajectory_pb2.Group:
    """A group of attempts, each a single answer or whole conversations."""
    made = trajectory_pb2.Group(id=group, job_id=job, step=1)
    for number, attempt in enumerate(attempts):
        made.trajectories.add(
            id=f"{group}/t{number}",
            group_id=group,
            scenario_id="s",
            attempt=number,
            stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
            histories=[said(attempt)] if isinstance(attempt, str) else attempt,
        )
    return made


def rewards(group: trajectory_pb2.Group) -> list[float | None]:
    """Each attempt's reward, None without one."""
    return [t.reward if t.HasField("reward") else None for t in group.trajectories]


@asynccontextmanager
async def judge_service(model: FakeJudge, **settings: Any) -> AsyncIterator[str]:
    """The address of the real servicer over gRPC, whose default judge model is a scripted one."""
    async with httpx.AsyncClient() as http:
        server = Server("judge", ServerSettings())
        server.add(
            judge_service_pb2_grpc.add_JudgeServiceServicer_to_server,
            JudgeBench(model, http, **settings).servicer,
            "podium.judge.v1.JudgeService",
        )
        await server.start()
        try:
            yield f"127.0.0.1:{server.port}"
        finally:
            await server.stop(0)


class JudgeBench:
    """The real servicer, whose default judge model is a scripted one."""

    def __init__(self, judge: FakeJudge, client: httpx.AsyncClient, **settings: Any) -> None:
        quick = {
            "base_url": judge.base_url,
            "model": "m",
            "request_timeout_seconds": 5.0,
            "request_attempts": 3,
            "backoff_seconds": 0.001,
            "max_backoff_seconds": 0.05,
        }
        self.judge = judge
        self.servicer = JudgeServicer(Settings(**(quick | settings)), client)

    async def ask(
        self,
        group: trajectory_pb2.Group,
        ruler: spec_pb2.RulerSpec | None = None,
        *more: spec_pb2.Scorer,
        job_usage: judge_service_pb2.JudgeUsage | None = None,
        grant: judge_service_pb2.JudgeGrant | None = None,
    ) -> judge_service_pb2.ScoreGroupResponse:
        """What ScoreGroup answers for a RULER scorer and perhaps others."""
        scorers = [spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=ruler), *more]
        request = judge_service_pb2.ScoreGroupRequest(
            group=group,
            reward=spec_pb2.RewardSpec(scorers=scorers),
            job_usage=job_usage,
            grant=grant,
        )
        context: grpc.aio.ServicerContext[Any, Any] = None  # type: ignore[assignment]
        return await self.servicer.ScoreGroup(request, context)

    async def rewarded(
        self,
        group: trajectory_pb2.Group,
        *scorers: spec_pb2.Scorer,
        job_usage: judge_service_pb2.JudgeUsage | None = None,
        grant: judge_service_pb2.JudgeGrant | None = None,
    ) -> judge_service_pb2.ScoreGroupResponse:
        """What ScoreGroup answers for these scorers alone."""
        request = judge_service_pb2.ScoreGroupRequest(
            group=group,
            reward=spec_pb2.RewardSpec(scorers=scorers),
            job_usage=job_usage,
            grant=grant,
        )
        context: grpc.aio.ServicerContext[Any, Any] = None  # type: ignore[assignment]
        return await self.servicer.ScoreGroup(request, context)

    async def score(
        self,
        group: trajectory_pb2.Group,
        ruler: spec_pb2.RulerSpec | None = None,
        *more: spec_pb2.Scorer,
    ) -> trajectory_pb2.Group:
        """The scored group."""
        return (await self.ask(group, ruler, *more)).group


def model(judge: FakeJudge, name: str = "m", **fields: Any) -> spec_pb2.JudgeModel:
    """The scripted model as a spec names it."""
    return spec_pb2.JudgeModel(base_url=judge.base_url, model=name, **fields)
