"""What a job does when its judges may spend no more, or have no answer; on fakes of every port."""

from __future__ import annotations

from typing import Any

import pytest
from podium.core.errors import InternalError, UnavailableError
from podium.core.skip_reasons import NO_JUDGE_ANSWERS
from podium.jobs.v1 import job_service_pb2 as pb
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import spec_pb2
from podium_controller.domain.timestamps import month
from podium_controller.pools.projects import ProjectLimits
from prometheus_client import REGISTRY
from support.controlled import ATTEMPTS, GROUPS, small_job
from support.memory_fixtures import client, fleet
from support.memory_fleet import MemoryClient, MemoryFleet, memory_controller

__all__ = ["client", "fleet"]

READS, WRITES = 1000, 16
TOKENS = GROUPS * (READS + WRITES)
"""What the judge of one step uses."""
ENOUGH = TOKENS + 1500
"""For that step and for none after it."""
DEFECT = "internal error; the server's log has it under error id 123"


@pytest.fixture(autouse=True)
def costly(fleet: MemoryFleet) -> None:
    fleet.judge.usage = judge_pb.JudgeUsage(calls=1, prompt_tokens=READS, completion_tokens=WRITES)
    fleet.judge.needs = 2000


def ruled_job(steps: int = 1, **changes: Any) -> spec_pb2.JobSpec:
    """Scored by RULER alone."""
    judge = spec_pb2.JudgeModel(
        base_url="http://judge.invalid/v1", model="m", max_completion_tokens=WRITES
    )
    ruler = spec_pb2.RulerSpec(judges=[judge], max_job_tokens=changes.pop("max_job_tokens", 0))
    scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=ruler)
    return small_job(steps, reward=spec_pb2.RewardSpec(scorers=[scorer]), **changes)


class Breaks:
    """Raises at a point, whenever it is about one of these."""

    def __init__(self, fleet: MemoryFleet, point: str, error: Exception, *abouts: str) -> None:
        self._point, self._abouts, self._error = point, abouts, error
        fleet.at = self

    async def __call__(self, point: str, about: str) -> None:
        if point == self._point and about.endswith(self._abouts):
            raise self._error


def no_answer() -> UnavailableError:
    """A judge service whose models are busy, or away, or refuse."""
    return UnavailableError("judge is unavailable: HTTP 429", reason=NO_JUDGE_ANSWERS)


def of_step(step: int) -> tuple[str, ...]:
    return tuple(f"/s{step}/g{position}" for position in range(GROUPS))


async def test_t26_h_a_projects_judges_stop_at_its_budget_whatever_job_asks(
    fleet: MemoryFleet,
) -> None:
    limits = {"a": ProjectLimits(maxJudgeTokens=ENOUGH), "b": ProjectLimits()}
    async with memory_controller(fleet, limits) as client:
        await client.create(ruled_job(project="a"), "budget-a1")
        await client.succeeded("budget-a1")
        await client.stub.DeleteJob(pb.DeleteJobRequest(job_id="budget-a1"))
    # Neither this controller nor its judge is the one that counted, and the job is deleted.
    async with memory_controller(fleet, limits) as client:
        await client.create(ruled_job(project="a"), "budget-a2")
        failed = await client.state("budget-a2", pb.JOB_STATE_FAILED)
        assert failed.failure_reason == "JUDGE_BUDGET_SPENT"
        assert (
            f"the judges of project 'a' have used {TOKENS} tokens of {ENOUGH} in {month()}"
            in failed.failure_message
        )
        assert fleet.judge.judged.total() == GROUPS
        await client.create(ruled_job(project="b"), "budget-b")
        await client.succeeded("budget-b")
        # What needs no judge model needs no budget.
        await client.create(small_job(1, project="a"), "budget-a3")
        await client.succeeded("budget-a3")


async def test_a_job_whose_judges_have_spent_their_budget_ends_with_that_reason(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    job = await client.create(ruled_job(3, max_job_tokens=ENOUGH))
    failed = await client.state(job.id, pb.JOB_STATE_FAILED)
    assert fleet.judge.judged.total() == GROUPS
    assert failed.failure_reason == "JUDGE_BUDGET_SPENT"
    assert f"have used {TOKENS} tokens of {ENOUGH} (max_job_tokens)" in failed.failure_message
    assert [step.number for step in await client.steps(job.id)] == [1]


async def test_a_judge_that_stays_away_fails_the_job_before_it_burns_a_second_step(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    Breaks(fleet, "judge:begin", no_answer(), *of_step(2))
    await client.create(ruled_job(5, recovery_timeout_seconds=0.1), "away")
    failed = await client.state("away", pb.JOB_STATE_FAILED)
    assert failed.failure_reason == "JUDGE_UNAVAILABLE"
    assert "no group of step 2 could be judged" in failed.failure_message
    assert "judge stayed away for more than 0.1 seconds" in failed.failure_message
    assert fleet.trainer.taken == [("away", 1)]
    # Waited for, not collected again: sampling is what costs.
    assert set(fleet.rollout.collected.values()) == {1}


async def test_a_group_that_no_judge_answers_for_is_skipped_and_the_others_train(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    """Such as one whose prompt a gateway in front of the judge does not let through."""
    Breaks(fleet, "judge:begin", no_answer(), "/s1/g0")
    counted = "podium_controller_groups_total"
    before = REGISTRY.get_sample_value(counted, {"outcome": "judge_unavailable"}) or 0
    await client.create(ruled_job(recovery_timeout_seconds=0.1), "partly")
    await client.succeeded("partly")
    skipped = [t for t in await client.trajectories("partly") if not t.HasField("reward")]
    assert len(skipped) == ATTEMPTS
    assert {t.group_id for t in skipped} == {"partly/s1/g0"}
    assert all("stayed away for more than 0.1 seconds" in t.explanation for t in skipped)
    warnings = [e.message for e in await client.events("partly") if e.type == pb.EVENT_TYPE_WARNING]
    assert [text for text in warnings if "group partly/s1/g0 is skipped" in text]
    after = REGISTRY.get_sample_value(counted, {"outcome": "judge_unavailable"})
    assert after == before + 1


@pytest.mark.parametrize(
    ("point", "says"),
    [("judge:begin", "is skipped. The judge says"), ("collect:end", "could not be collected")],
)
async def test_a_defect_that_shows_on_one_group_costs_that_group(
    fleet: MemoryFleet, client: MemoryClient, point: str, says: str
) -> None:
    Breaks(fleet, point, InternalError(DEFECT), "/s1/g0")
    await client.create(ruled_job(2), "one")
    await client.succeeded("one")
    without = [t for t in await client.trajectories("one") if not t.HasField("reward")]
    assert {t.group_id for t in without} == {"one/s1/g0"}
    assert len(without) == ATTEMPTS
    told = [e.message for e in await client.events("one") if e.type == pb.EVENT_TYPE_WARNING]
    (warning,) = [text for text in told if says in text]
    assert "one/s1/g0" in warning
    assert DEFECT in warning


@pytest.mark.parametrize(
    ("point", "reason"), [("judge:begin", "JUDGE_FAILING"), ("collect:end", "ROLLOUT_FAILING")]
)
async def test_a_defect_that_shows_on_every_group_ends_the_job_with_its_reason(
    fleet: MemoryFleet, client: MemoryClient, point: str, reason: str
) -> None:
    Breaks(fleet, point, InternalError(DEFECT), *of_step(2))
    await client.create(ruled_job(3), "all")
    failed = await client.state("all", pb.JOB_STATE_FAILED)
    assert failed.failure_reason == reason
    assert f"all {GROUPS} groups of step 2 failed 3 times in a row" in failed.failure_message
    assert DEFECT in failed.failure_message
    assert failed.completed_steps == 1


async def test_an_environment_that_always_fails_ends_the_job_in_its_own_words(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    fleet.rollout.fails = lambda group_id: True
    job = await client.create(small_job(3))
    failed = await client.state(job.id, pb.JOB_STATE_FAILED)
    assert failed.failure_reason == "ENVIRONMENT_FAILING"
    assert "the inbox is missing" in failed.failure_message
    warnings = [e for e in await client.events(job.id) if e.type == pb.EVENT_TYPE_WARNING]
    assert len(warnings) == 2
    assert all("the inbox is missing" in event.message for event in warnings)
    assert fleet.trainer.taken == []
    assert (fleet.trainer.job, fleet.inference.job) == ("", "")


async def test_a_judge_service_that_stays_away_is_a_lost_service(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    fleet.kill("judge")
    await client.create(ruled_job(recovery_timeout_seconds=0.1), "no-service")
    failed = await client.state("no-service", pb.JOB_STATE_FAILED)
    assert failed.failure_reason == "JUDGE_LOST"
