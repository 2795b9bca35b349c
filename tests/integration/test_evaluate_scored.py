"""`podium eval --judge` with a stranger's function, by a real judge service and scorer."""

from __future__ import annotations

import json
import os
from pathlib import Path

from podium.judge.v1 import judge_service_pb2_grpc
from support.cli import invoke
from support.fake_judge import grades
from support.judge_process import Process, process, stub
from support.scorer_process import served_scorer

__all__ = ["process", "stub"]

STRANGER = """
def score(scenario, trajectories):
    if scenario["data"]["n"] == 2:
        return [float("nan") for each in trajectories]
    if scenario["data"]["n"] == 3:
        return [(None, "no opinion") for each in trajectories]
    return [(each["reward"] + 10 * scenario["data"]["n"], "seen") for each in trajectories]
"""

TASK = """
from podium.environments import Agent, Environment, Observation, Scenario, StepResult, assistant
from podium.environments import user


class Speaks(Agent):
    async def act(self, observation):
        return assistant("words")


class Task(Environment):
    name = "task"
    description = "Says something."
    splits = ("heldout",)
    baselines = {"speaks": lambda seed: Speaks()}

    def scenarios(self, split):
        return [Scenario(str(n), {"n": n}) for n in range(4)]

    async def reset(self, scenario, seed):
        return Observation([user(scenario.id)])

    async def step(self, action):
        return StepResult(Observation(), reward=1.0, terminated=True)
"""


async def test_a_strangers_function_and_a_rubric_make_the_reward_and_what_they_lack_is_told(
    process: Process, stub: judge_service_pb2_grpc.JudgeServiceAsyncStub, tmp_path: Path
) -> None:
    process.model.then(grades(lambda _, text: 0.5))
    (tmp_path / "task.py").write_text(TASK)
    with served_scorer(tmp_path, STRANGER) as address:
        (tmp_path / "judge.yaml").write_text(
            f"scorers: [{{kind: http, http: {{base_url: '{address}'}}}}, {{kind: rubric, weight: 2,"
            " rubric: {criteria: [{name: clear, description: It is.}]}}]"
        )
        result = await invoke(
            *("eval", "task.py", "-a", "baseline:speaks", "--judge", "judge.yaml"),
            *("-o", "json", "--no-store"),
            cwd=tmp_path,
            environment={**os.environ, "PODIUM_JUDGE_ADDRESS": process.address},
        )
    assert result.code == 3, result.err
    assert "1 scenarios of baseline:speaks were not scored" in result.err
    assert "1 attempts of baseline:speaks have no score" in result.err
    assert "no opinion" in result.err
    (found,) = json.loads(result.out)
    assert [each["reward"] for each in found["episodes"]] == [2.0, 12.0, None, None]
    assert found["episodes"][1]["reward_parts"] == {"http": 11.0, "rubric": 0.5}
    assert (found["success"], found["scored"]["scenarios"]) == (1.0, 3)
