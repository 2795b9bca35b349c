"""What a tracker is told, in which order, and from where: a tracker that keeps what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Literal

import pytest
from podium.core.errors import NotFoundError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import trajectory_pb2
from podium_tracking.delivery import Delivery
from podium_tracking.domain.trackers import Delivered
from support.tracking import JOB, Ledger, deliver, episode, job_of


class Told:
    """Remembers, and forgets what it does not hold: a tracker whose processes come and go."""

    def __init__(self, at: Literal["step", "end", "never"], delivered: Delivered) -> None:
        self.episodes_at = at
        self.delivered = delivered
        self.ids: list[str] = []
        self.calls: list[tuple[str, int]] = []
        self.asked = 0
        self.takes_the_end = True

    def open(self, job: pb.Job) -> Delivered:
        return self.delivered

    def has(self, trajectory_id: str) -> bool:
        self.asked += 1
        return trajectory_id in self.ids

    def episodes(self, step: int, chunk: Sequence[trajectory_pb2.Trajectory]) -> None:
        assert all(not history.tokens.token_ids for each in chunk for history in each.histories)
        self.ids += [each.id for each in chunk if each.id not in self.ids]
        self.calls.append(("episodes", step))

    def step(self, sequence: int, step: pb.Step) -> None:
        self.calls.append(("step", step.number))

    def evaluation(self, sequence: int, evaluation: pb.Evaluation) -> None:
        self.calls.append(("evaluation", evaluation.version))

    def finish(self, job: pb.Job) -> None:
        self.calls.append(("finish", 0))
        self.delivered = Delivered(finished=self.takes_the_end)

    def close(self) -> None:
        self.calls.append(("close", 0))


async def test_everything_is_told_in_order() -> None:
    told = Told("step", Delivered())
    assert await deliver(Ledger(job_of({"langfuse": {}})), told)
    steps = [("episodes", 1), ("step", 1), ("episodes", 2), ("step", 2), ("evaluation", 2)]
    end = [("finish", 0), ("close", 0), ("close", 0)]
    assert told.calls == [*steps, ("episodes", 3), ("step", 3), *end]


async def test_who_knows_the_last_event_is_told_what_comes_after() -> None:
    told = Told("never", Delivered(sequence=3, step=2))
    assert await deliver(Ledger(job_of({"mlflow": {}})), told)
    assert told.calls[:3] == [("evaluation", 2), ("step", 3), ("finish", 0)]


async def test_the_first_step_that_is_not_there_is_found_by_halves() -> None:
    ledger = Ledger(job_of({"langfuse": {}}), steps=200)
    told = Told("step", Delivered())
    told.ids = [each.id for each in ledger.kept if _step(each) <= 150]
    assert await deliver(ledger, told)
    # The last one that is there again, as some of it may be missing.
    assert [step for what, step in told.calls if what == "episodes"] == list(range(150, 201))
    assert told.asked <= 8
    assert set(told.ids) == {each.id for each in ledger.kept}


def _step(trajectory: trajectory_pb2.Trajectory) -> int:
    return int(trajectory.group_id.split("/")[1][1:])


async def test_steps_whose_episodes_are_not_kept_any_more_are_passed() -> None:
    ledger = Ledger(job_of({"langfuse": {}}))
    ledger.kept = [each for each in ledger.kept if _step(each) == 3]
    told = Told("step", Delivered())
    assert await deliver(ledger, told)
    assert told.ids == [f"{JOB}/s3/g0/t0", f"{JOB}/s3/g0/t1"]


async def test_a_step_is_told_the_groups_that_it_trained_on() -> None:
    ledger = Ledger(job_of({"langfuse": {}}), steps=2)
    # Ready before its time: collected for the second step, trained in the first.
    late = episode(1, 0)
    late.id, late.group_id = f"{JOB}/s1/g1/t0", f"{JOB}/s1/g1"
    ledger.kept = [episode(1, 0), episode(2, 0), late]
    del ledger.steps_told[0].group_ids[:]
    ledger.steps_told[0].group_ids.extend([f"{JOB}/s2/g0", f"{JOB}/s1/g0"])
    del ledger.steps_told[1].group_ids[:]
    ledger.steps_told[1].group_ids.append(f"{JOB}/s1/g1")
    told = Told("step", Delivered())
    assert await deliver(ledger, told)
    assert told.ids == [f"{JOB}/s1/g0/t0", f"{JOB}/s2/g0/t0", f"{JOB}/s1/g1/t0"]


@pytest.mark.parametrize("at", ["step", "end"])
async def test_groups_that_were_drawn_for_no_step_are_told_with_theirs(
    at: Literal["step", "end"],
) -> None:
    ledger = Ledger(job_of({"langfuse": {}}), steps=2)
    # Kept with the step that took it, which its id does not say.
    drawn = episode(2, 0)
    drawn.id, drawn.group_id = f"{JOB}/d1/t0", f"{JOB}/d1"

    async def trajectories(
        job_id: str, *, step: int | None = None
    ) -> AsyncIterator[trajectory_pb2.Trajectory]:
        if step in (None, 2):
            yield drawn

    ledger.trajectories = trajectories  # type: ignore[method-assign]
    for told_of, id_ in zip(ledger.steps_told, (f"{JOB}/d0", f"{JOB}/d1"), strict=True):
        del told_of.group_ids[:]
        told_of.group_ids.append(id_)
    told = Told(at, Delivered())
    assert await deliver(ledger, told)
    assert told.ids == [drawn.id]
    assert told.calls.count(("episodes", 2)) == 1


async def test_the_end_counts_when_the_tracker_says_that_it_has_it() -> None:
    told = Told("never", Delivered())
    told.takes_the_end = False
    ledger = Ledger(job_of({"wandb": {}}))
    assert not await deliver(ledger, told)
    told.takes_the_end = True
    assert await deliver(ledger, told)
    before = len(told.calls)
    assert await deliver(ledger, told)
    assert told.calls[before:] == [("close", 0)]


async def test_a_tracker_that_raises_is_closed() -> None:
    class Broken(Told):
        def step(self, sequence: int, step: pb.Step) -> None:
            raise RuntimeError("no room")

    told = Broken("never", Delivered())
    with pytest.raises(RuntimeError, match="no room"):
        await deliver(Ledger(job_of({"wandb": {}})), told)
    assert told.calls == [("close", 0)]


async def test_without_news_or_when_asked_it_gives_its_place_back() -> None:
    class Quiet(Ledger):
        async def watch(
            self, job_id: str, *, after_sequence: int = 0
        ) -> AsyncIterator[pb.WatchJobResponse]:
            yield pb.WatchJobResponse()
            await asyncio.Event().wait()

    said: list[str] = []
    told, ledger = Told("never", Delivered(step=3)), Quiet(job_of({"wandb": {}}))
    delivery = Delivery(ledger, told, 0.01, lambda what, step: said.append(f"{what} {step}"))
    assert not await delivery.run(JOB)
    assert "idle 3" in said
    stop = asyncio.Event()
    stop.set()
    assert not await Delivery(ledger, told, 60.0, lambda what, step: None, stop).run(JOB)
    assert told.calls == [("close", 0)] * 2


async def test_a_job_that_is_gone_is_told_nobody() -> None:
    told = Told("never", Delivered())
    ledger = Ledger(job_of({"wandb": {}}))
    with pytest.raises(NotFoundError):
        await Delivery(ledger, told, 1.0, lambda what, step: None).run("another")
    assert told.calls == []
