"""A run over an outage of the database: what is underway waits, and is written once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from podium.jobs.v1 import job_service_pb2 as pb
from podium.judge.v1.judge_service_pb2 import JudgeUsage
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.errors import DatabaseUnavailableError
from podium_controller.domain.identifiers import WAITING_ROOM
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import COLLECTED, JUDGED, GroupKey
from podium_controller.domain.stop_signals import StopSignals
from podium_controller.domain.taken import Drawn
from podium_controller.domain.timestamps import month, now_ns, timestamp
from podium_controller.store import Database, JobStore, LeaseStore, SqlLedger
from podium_controller.store.jobs import NewJob
from podium_controller.training.patient_ledger import PatientLedger
from sqlalchemy.ext.asyncio import AsyncConnection
from support.empty_database import empty_database

MINUTE = 60.0


class Unreliable(SqlLedger):
    """Whose database commits and does not say so, or is away."""

    answers_lost = 0
    is_away = False
    asked = 0

    @asynccontextmanager
    async def _write(self) -> AsyncIterator[AsyncConnection]:
        self.asked += 1
        if self.is_away:
            raise DatabaseUnavailableError("away")
        async with super()._write() as connection:
            yield connection
        if self.answers_lost:
            self.answers_lost -= 1
            raise DatabaseUnavailableError("the answer is lost")


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Unreliable]:
    database = Database(await empty_database(tmp_path))
    spec = spec_pb2.JobSpec(base_model="m", training=spec_pb2.TrainingSpec(steps=5))
    await JobStore(database, Notifications()).create(NewJob("job", spec, "", "digest", ""))
    epoch = await LeaseStore(database).acquire("test", MINUTE)
    assert epoch is not None
    made = Unreliable(database, Notifications(), epoch)
    assert await made.start("job", "pool")
    yield made
    await database.close()


@pytest.fixture
def control() -> StopSignals:
    return StopSignals()


@pytest.fixture
def patient(ledger: Unreliable, control: StopSignals) -> PatientLedger:
    return PatientLedger(ledger, control)


def group(key: GroupKey) -> trajectory_pb2.Group:
    made = trajectory_pb2.Group(id=key.group_id, job_id="job", step=key.step)
    # A reward that is no number equals none, not even itself.
    made.trajectories.add(id=f"{key.group_id}/t0", reward=float("nan"))
    return made


async def test_what_was_written_without_an_answer_is_written_once(
    ledger: Unreliable, patient: PatientLedger
) -> None:
    key = GroupKey("job", 1, 0)
    ledger.answers_lost = 1
    await patient.save_group(key, COLLECTED, group(key))
    ledger.answers_lost = 1
    await patient.save_judged(key, group(key), JudgeUsage(calls=1, prompt_tokens=10), month())
    assert (await patient.judge_usage("job")).calls == 1
    assert (await patient.stored_groups("job", 1))[0].status == JUDGED
    ledger.answers_lost = 1
    await patient.add_event("job", pb.EVENT_TYPE_WARNING, "once", 1)
    assert [text for _, text in (await patient.past("job", 1)).events] == ["once"]
    now = timestamp(now_ns())
    step = pb.Step(number=1, version=1, group_ids=[key.group_id], start_time=now, commit_time=now)
    ledger.answers_lost = 1
    # It is this run that committed it, whichever call it was.
    assert await patient.commit_step("job", step)
    waiting = GroupKey("job", WAITING_ROOM, 0)
    await patient.save_group(waiting, JUDGED, group(waiting))
    ledger.answers_lost = 1
    await patient.take_groups("job", [group(waiting)], Drawn(2, "state"), last=False)
    assert [each.group.id for each in (await patient.stored_groups("job", 2)).values()] == [
        waiting.group_id
    ]
    assert ledger.answers_lost == 0


async def test_a_call_waits_until_the_database_is_back(
    ledger: Unreliable, patient: PatientLedger
) -> None:
    key = GroupKey("job", 1, 0)
    ledger.is_away = True
    saving = asyncio.create_task(patient.save_group(key, COLLECTED, group(key)))
    before = ledger.asked
    while ledger.asked < before + 3 and not saving.done():
        await asyncio.sleep(0)
    assert not saving.done(), saving.exception()
    ledger.is_away = False
    await saving
    assert set(await patient.stored_groups("job", 1)) == {0}


@pytest.mark.parametrize("end", ["pause", "give up"])
async def test_a_run_that_ends_or_is_to_pause_waits_no_more(
    end: str, ledger: Unreliable, patient: PatientLedger, control: StopSignals
) -> None:
    """A full disk keeps groups from being written, and lets people pause the job."""
    ledger.is_away = True
    telling = asyncio.create_task(patient.set_phase("job", "train"))
    before = ledger.asked
    while ledger.asked < before + 2 and not telling.done():
        await asyncio.sleep(0)
    assert not telling.done(), telling.exception()
    control.pause.set() if end == "pause" else patient.give_up()
    with pytest.raises(DatabaseUnavailableError):
        await telling
