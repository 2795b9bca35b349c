"""ART's RULER call against the real judge servicer over gRPC, its model scripted."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from podium.core.errors import FailedPreconditionError
from podium.judge.v1 import judge_service_pb2_grpc
from podium.rpc import Server, ServerSettings
from podium.sdk import Addresses, AsyncClient
from podium.training import Trajectory, TrajectoryGroup, gather_trajectory_groups
from podium.training.ruler import ruler_score_group
from podium.training.trajectories import TrajectoryException
from support.fake_judge import FakeJudge, fake_judge, says, scores
from support.judging import QUESTION, JudgeBench, by_number


@pytest.fixture
async def judge() -> AsyncIterator[tuple[FakeJudge, AsyncClient]]:
    with fake_judge() as model:
        async with httpx.AsyncClient() as http:
            server = Server("judge", ServerSettings())
            server.add(
                judge_service_pb2_grpc.add_JudgeServiceServicer_to_server,
                JudgeBench(model, http).servicer,
                "podium.judge.v1.JudgeService",
            )
            await server.start()
            async with AsyncClient(Addresses(judge=f"127.0.0.1:{server.port}")) as client:
                yield model, client
            await server.stop(0)


def attempt(number: int) -> Trajectory:
    return Trajectory(
        messages_and_choices=[
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": f"There are {number}"},
        ],
        reward=float(number),
        metrics={"turns": 1},
    )


async def test_scores_become_rewards_and_nothing_else_is_lost(
    judge: tuple[FakeJudge, AsyncClient],
) -> None:
    model, client = judge
    model.then(scores(by_number))
    group = TrajectoryGroup(
        [attempt(7), attempt(2)],
        exceptions=[TrajectoryException(type="KeyError", message="x")],
        metadata={"scenario_id": "s"},
    )
    scored = await ruler_score_group(group, rubric="More is better.", client=client)
    assert scored is not None
    assert [trajectory.reward for trajectory in scored] == [0.7, 0.2]
    assert [trajectory.reward for trajectory in group] == [7, 2]
    first = scored.trajectories[0]
    assert first.metrics == {"turns": 1, "ruler_score": 0.7, "independent_reward": 7}
    assert first.logs[-1].startswith("RULER explanation: saw ")
    assert scored.metadata == {"scenario_id": "s"}
    assert scored.exceptions[0].type == "KeyError"
    assert "More is better." in str(model.requests[0]["messages"])


async def test_what_cannot_be_scored_is_raised_or_dropped(
    judge: tuple[FakeJudge, AsyncClient],
) -> None:
    model, client = judge
    model.then(says("no idea"))
    group = TrajectoryGroup([attempt(1), attempt(2)])
    with pytest.raises(FailedPreconditionError) as failed:
        await ruler_score_group(group, client=client)
    assert failed.value.reason == "JUDGE_FAILED"

    async def ranked(whole: TrajectoryGroup) -> TrajectoryGroup | None:
        return await ruler_score_group(whole, swallow_exceptions=True, client=client)

    async def made() -> TrajectoryGroup:
        return group

    assert await gather_trajectory_groups([made()], after_each=ranked) == []


async def test_an_empty_group_asks_nobody() -> None:
    empty = TrajectoryGroup()
    assert await ruler_score_group(empty) is empty
