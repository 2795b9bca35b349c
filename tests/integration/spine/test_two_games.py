"""A job of two environments, whose turns learn from what followed them, through real services."""

from __future__ import annotations

from pathlib import Path

import pytest
from podium.cli.job.submit import load
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.local.launcher import Launcher
from support.jobs import client_of

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.full,
    pytest.mark.timeout(600),
]

FILE = Path(__file__).parents[3] / "examples/two_games.yaml"
SMALL = (
    "training.steps=2",
    "environments[1].from_step=2",
    "rollout.groups_per_step=3",
    "rollout.group_size=4",
    "rollout.episode.max_turns=4",
    "rollout.sampling.max_tokens=4",
    "evaluation.scenarios=2",
)


async def test_two_games_train_by_their_turns(real_stack: Launcher) -> None:
    spec = load(str(FILE), SMALL).spec
    async with client_of(real_stack) as client:
        job = await client.jobs.create(spec, job_id="two-games", request_id="two-games")
        job = await client.jobs.wait(job.id, within=500)
        assert job.state == jobs.JOB_STATE_SUCCEEDED, job.failure_message
        steps = [step async for step in client.jobs.steps(job.id)]
        episodes = [each async for each in client.jobs.trajectories(job.id)]
        evaluations = [each async for each in client.jobs.evaluations(job.id)]
    told = [step.metrics.get("env/2048/trajectories", 0) for step in steps]
    assert told == [0, 4]
    assert [step.metrics["env/tic_tac_toe/trajectories"] for step in steps] == [12, 8]
    assert sum(step.metrics.get("train/turns", 0) for step in steps) > 12
    assert {each.environment for each in episodes} == {"tic_tac_toe", "2048"}
    for each in episodes:
        assert each.environment_weight == 1
        paid = sum(step.reward for step in each.transitions) + each.score_reward
        assert each.reward == pytest.approx(paid)
        # A step for each turn, which is what gives it its tokens.
        runs = sum(len(history.tokens.spans) for history in each.histories)
        assert runs == sum(step.conversation == "" for step in each.transitions)
    assert all("env/tic_tac_toe/reward" in each.metrics for each in evaluations)
    assert {each.episodes for each in evaluations} == {2}
