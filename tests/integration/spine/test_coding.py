"""S47: the coding job goes through steps: real code of a real model, graded in the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest
from podium.cli.job.submit import load
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.local.launcher import Launcher
from support.jobs import client_of
from support.namespaces import needs_namespaces

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.full,
    pytest.mark.timeout(600),
    needs_namespaces,
]

FILE = Path(__file__).parents[3] / "examples/coding.yaml"
STEPS = 2
# The file's own settings but for how much: a curve takes longer than a test.
SMALL = (f"training.steps={STEPS}", "rollout.groups_per_step=4", "evaluation.samples=1")


async def test_s47_a_coding_job_trains_on_what_the_sandbox_graded(real_stack: Launcher) -> None:
    spec = load(str(FILE), (*SMALL, "evaluation.scenarios=2", "evaluation.greedy=false")).spec
    async with client_of(real_stack) as client:
        job = await client.jobs.create(spec, job_id="coding", request_id="coding")
        job = await client.jobs.wait(job.id, within=500)
        assert job.state == jobs.JOB_STATE_SUCCEEDED, job.failure_message
        steps = [step async for step in client.jobs.steps(job.id)]
        episodes = [each async for each in client.jobs.trajectories(job.id)]
        evaluations = [each async for each in client.jobs.evaluations(job.id)]
    assert [step.version for step in steps] == [1, 2]
    # Groups whose attempts are all alike teach nothing, so a step alone may.
    assert sum(step.metrics["train/tokens_trained"] for step in steps) > 0
    assert max(step.metrics.get("train/grad_norm", 0.0) for step in steps) > 0
    trained = [each for each in episodes if each.group_id.split("/")[1].startswith("s")]
    assert len(trained) == STEPS * 4 * 8
    assert not any(each.failure.message for each in trained)
    # Each submission ran against hidden tests: some passed, some did not, and paid so.
    assert all(each.metrics["tests_total"] > 0 for each in trained)
    assert len({each.metrics["tests_passed"] > 0 for each in trained}) == 2
    solved = {each.reward > 0.5 for each in trained if each.metrics["success"]}
    assert solved <= {True}
    assert [each.version for each in evaluations] == [0, 2]
