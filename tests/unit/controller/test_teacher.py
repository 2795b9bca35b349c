"""What a teacher says is stored with the group, once; and what becomes of a group without it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from podium.core.errors import (
    DataLossError,
    InternalError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)
from podium.core.skip_reasons import TEACHER_ERROR, TEACHER_UNAVAILABLE
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.errors import (
    DatabaseUnavailableError,
    JobFailedError,
    LeaseLostError,
)
from podium_controller.domain.ports import COLLECTED, JUDGED, GroupKey, JobRecord
from podium_controller.domain.step_metrics import step_metrics
from podium_controller.pools.fair_share import FairShare
from podium_controller.pools.pools import Pool
from podium_controller.training import recovery as recovery_module
from podium_controller.training.judging import Judging, Scoring, unjudgeable
from podium_controller.training.scoring import scoring_of
from support.fakes.bench import JOB, Bench
from support.fakes.peers import FakeInference

KEY = GroupKey(JOB, 1, 0)


def judging_of(bench: Bench) -> Judging:
    return Judging(bench.judge, bench.spec.reward, bench.recovery, bench.ledger, bench.spending)


class Classroom(Bench):
    """The bench of a job with a teacher, `old@3`, at a pool of its own."""

    def __init__(self, teacher: str = "old@3", rewards: float = 0.0) -> None:
        training = spec_pb2.TrainingSpec(steps=3)
        training.loss.teacher_coefficient, training.loss.reward_coefficient = 1, rewards
        distillation = spec_pb2.DistillationSpec(teacher=teacher, pool="big")
        super().__init__(training=training, distillation=distillation)
        for version in range(4):
            self.registry.create(registry_pb.Manifest(model="old", version=version), ())
        self.teacher = FakeInference(self.registry, self, "big-model")
        pool = Pool("big", self.teacher, FairShare("big", 256, self.projects))
        job = JobRecord(JOB, self.spec, 0, 0, "")
        self.scoring: Scoring = scoring_of(
            job, judging_of(self), pool, self.recovery, self.ledger, self.reporter
        )

    async def store(self, group: trajectory_pb2.Group) -> trajectory_pb2.Group:
        """As it was collected."""
        await self.ledger.save_group(KEY, COLLECTED, group)
        return group

    async def stored(self) -> tuple[str, trajectory_pb2.Group]:
        """Status and group, as a controller that comes later finds it."""
        found = (await self.ledger.stored_groups(JOB, 1))[0]
        return found.status, found.group


def attempt(number: int, tokens: int = 6, reward: float = 0.25) -> trajectory_pb2.Trajectory:
    """Two turns: the third token, and the last two."""
    made = trajectory_pb2.Trajectory(
        id=f"{JOB}/s1/g0/t{number}",
        environment_reward=reward,
        stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
    )
    record = made.histories.add().tokens
    record.token_ids.extend(range(tokens))
    record.spans.add(start=2, length=1, temperature=1)
    record.spans.add(start=tokens - 2, length=2, temperature=1)
    record.logprobs.extend([-1.0, -2.0, -3.0])
    return made


def group(*attempts: trajectory_pb2.Trajectory) -> trajectory_pb2.Group:
    return trajectory_pb2.Group(id=f"{JOB}/s1/g0", trajectories=attempts or [attempt(0)])


def said(trajectory: trajectory_pb2.Trajectory) -> list[float]:
    return [value for each in trajectory.histories for value in each.tokens.teacher_logprobs]


def raises(error: Exception) -> Callable[[], None]:
    def answer() -> None:
        raise error

    return answer


async def test_each_sampled_token_gets_what_the_teacher_says_in_its_place() -> None:
    room = Classroom()
    room.teacher.says = lambda tokens: [-float(token) for token in tokens]
    failed = trajectory_pb2.Trajectory(stop_reason=trajectory_pb2.STOP_REASON_FAILED)
    made = await room.store(group(attempt(0), attempt(1, tokens=8), failed))
    # What comes after the last turn is nothing that the teacher need read.
    made.trajectories[1].histories[0].tokens.token_ids.append(77)
    scored = await room.scoring.score(KEY, made)
    assert [said(each) for each in scored.trajectories] == [[-2, -4, -5], [-2, -6, -7], []]
    assert [each.teacher for each in scored.trajectories] == ["old@3", "old@3", ""]
    assert sorted(room.teacher.scored) == [tuple(range(6)), tuple(range(8))]
    # No judge is asked, and the environment's own reward is shown all the same.
    assert room.judge.judged == {}
    assert scored.trajectories[0].reward == 0.25
    assert await room.stored() == (JUDGED, scored)


async def test_a_groups_numbers_tell_which_teacher_and_how_far_it_is() -> None:
    room = Classroom()
    scored = await room.scoring.score(KEY, await room.store(group(attempt(0), attempt(1))))
    metrics = step_metrics([scored], 0)
    assert metrics["teacher/kl"] == pytest.approx(0.5 - 2)
    assert (metrics["teacher/version"], metrics["teacher/tokens"]) == (3, 12)
    assert metrics["teacher/unread"] == 0
    assert not [name for name in step_metrics([group()], 0) if name.startswith("teacher/")]


async def test_who_comes_after_a_controller_that_lost_its_lease_asks_no_teacher_again() -> None:
    room = Classroom(rewards=0.5)
    made = await room.store(group())
    room.before("score", raises(LeaseLostError("the controller is another")))
    with pytest.raises(LeaseLostError):
        await room.scoring.score(KEY, made)
    status, kept = await room.stored()
    assert (status, said(kept.trajectories[0])) == (COLLECTED, [-0.5, -0.5, -0.5])
    scored = await room.scoring.score(KEY, kept)
    assert len(room.teacher.scored) == 1
    assert room.judge.judged == {made.id: 1}
    assert scored.trajectories[0].reward == 0.25
    assert said(scored.trajectories[0]) == [-0.5, -0.5, -0.5]


async def test_a_base_model_teaches_by_its_name() -> None:
    room = Classroom("base")
    scored = await room.scoring.score(KEY, await room.store(group()))
    assert scored.trajectories[0].teacher == "big-model"
    assert "teacher/version" not in step_metrics([scored], 0)


@pytest.mark.parametrize("window", [6, 5])
async def test_the_last_token_of_a_full_window_is_not_asked_for_and_more_is_left_out(
    window: int,
) -> None:
    room = Classroom()
    room.teacher.window = window
    scored = await room.scoring.score(KEY, await room.store(group(attempt(0), attempt(1, 5))))
    long, short = scored.trajectories
    if window == 6:
        assert said(long)[:2] == [-0.5, -0.5]
        assert math.isnan(said(long)[2])
        assert said(short) == [-0.5] * 3
        return
    assert (said(long), long.teacher) == ([], "")
    assert math.isnan(said(short)[2])
    assert scored.skip_reason == ""
    assert step_metrics([scored], 0)["teacher/unread"] == 1
    (told,) = [event.message for event in room.events if "cannot read" in event.message]
    assert "1 of 2 attempts" in told
    assert "too long" in told


async def test_a_record_that_contradicts_itself_is_not_sent() -> None:
    room = Classroom()
    broken = attempt(0)
    broken.histories[0].tokens.spans[1].length = 50
    scored = await room.scoring.score(KEY, await room.store(group(broken)))
    assert said(scored.trajectories[0]) == []
    assert room.teacher.scored == []


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("the pool drains", metadata={"peer": "inference"}),
        ResourceExhaustedError("busy", reason="QUEUE_FULL"),
        NotFoundError("it was unloaded", reason="POLICY_NOT_LOADED"),
    ],
)
async def test_a_teacher_that_is_away_is_waited_for_and_served_again(error: Exception) -> None:
    room = Classroom()
    room.before("score_tokens", raises(error))
    scored = await room.scoring.score(KEY, await room.store(group()))
    assert said(scored.trajectories[0]) == [-0.5] * 3
    assert (room.teacher.job, room.teacher.version) == ("old", 3)
    assert "load" in room.calls
    told = [event.message for event in room.events]
    assert told[1].startswith("teacher is lost")
    assert told[-1].startswith("teacher is back")


async def test_a_teacher_that_stays_away_costs_the_group_and_ends_no_job_that_has_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = Classroom()
    monkeypatch.setattr(room.recovery, "_timeout", 1e-9)
    away = raises(UnavailableError("the pool is gone", metadata={"peer": "inference"}))
    room.before("score_tokens", *[away] * 50)
    room.before("load", *[away] * 50)
    scored = await room.scoring.score(KEY, await room.store(group()))
    assert scored.skip_reason == TEACHER_UNAVAILABLE
    assert "the pool is gone" in scored.trajectories[0].explanation
    assert await room.stored() == (JUDGED, scored)
    assert unjudgeable([scored, group()]) is None
    assert unjudgeable([scored]) is scored
    assert recovery_module.NO_TEACHER_ANSWERS == "TEACHER_UNAVAILABLE"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ([math.nan, -1, -1, -1, -1], "log-prob nan"),
        ([-math.inf, -1, -1, -1, -1], "log-prob -inf"),
        ([0.5, -1, -1, -1, -1], "log-prob 0.5"),
        ([-1.0], "1 log-probs of 6 tokens"),
        ([], "0 log-probs of 6 tokens"),
    ],
)
async def test_an_answer_of_no_use_costs_the_group(answer: list[float], told: str) -> None:
    room = Classroom()
    room.teacher.says = lambda tokens: answer
    made = await room.store(group())
    scored = await room.scoring.score(KEY, made)
    assert scored.skip_reason == TEACHER_ERROR
    assert told in scored.trajectories[0].explanation
    assert said(scored.trajectories[0]) == []


async def test_a_defect_of_the_teachers_service_costs_the_group() -> None:
    room = Classroom()
    room.before("score_tokens", raises(InternalError("error id 7")))
    scored = await room.scoring.score(KEY, await room.store(group()))
    assert scored.skip_reason == TEACHER_ERROR


async def test_another_policy_is_no_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Classroom()
    monkeypatch.setattr(room.teacher, "use", lambda policy: 2)
    scored = await room.scoring.score(KEY, await room.store(group()))
    assert scored.skip_reason == TEACHER_ERROR
    assert "old@2, asked for old@3" in scored.trajectories[0].explanation


@pytest.mark.parametrize(
    "error",
    [
        DataLossError("its files are damaged", reason="BLOB_DAMAGED"),
        NotFoundError("old@3 is deleted", reason="VERSION_NOT_FOUND"),
    ],
)
async def test_a_teacher_that_can_never_be_served_ends_the_job_in_words_of_its_own(
    error: Any,
) -> None:
    # Raised as it is, BLOB_DAMAGED would have the student's own version made again.
    room = Classroom()
    room.before("score_tokens", raises(NotFoundError("gone", reason="POLICY_NOT_LOADED")))
    room.before("load", raises(error))
    with pytest.raises(JobFailedError) as raised:
        await room.scoring.score(KEY, await room.store(group()))
    assert raised.value.reason == "TEACHER_NOT_SERVED"
    assert "old@3" in raised.value.message
    assert error.message in raised.value.message


@pytest.mark.parametrize("error", [DatabaseUnavailableError("away"), LeaseLostError("taken")])
async def test_what_the_controllers_own_store_says_is_not_laid_on_the_teacher(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    room = Classroom()

    async def written(*told: Any) -> None:
        raise error

    monkeypatch.setattr(room.reporter, "event", written)
    room.before("score_tokens", raises(UnavailableError("the pool drains")))
    made = await room.store(group())
    with pytest.raises(type(error)):
        await room.scoring.score(KEY, made)


def test_a_pool_that_is_gone_from_the_settings_is_told() -> None:
    room = Classroom()
    job = JobRecord(JOB, room.spec, 0, 0, "")
    with pytest.raises(JobFailedError) as raised:
        scoring_of(job, judging_of(room), None, room.recovery, room.ledger, room.reporter)
    assert raised.value.reason == "TEACHER_POOL_GONE"
