"""What is done every second costs little, however many jobs there are and were."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from podium.jobs.v1 import job_service_pb2 as pb
from podium_controller.domain.waits import Wait
from support.empty_database import empty_database
from support.statements import statements
from support.stores import SqlStores, lead, new


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[SqlStores]:
    made = SqlStores(await empty_database(tmp_path))
    yield made
    await made.close()


async def test_a_long_line_is_told_at_once_what_it_waits_for(stores: SqlStores) -> None:
    ledger = await lead(stores)
    waits = {f"job-{number}": Wait("POOL_TAKEN", f"behind {number}") for number in range(5)}
    for job_id in waits:
        await stores.jobs.create(new(job_id))
    with statements() as sent:
        await ledger.keep_waiting(waits)
    assert [statement for statement, _ in sent if statement.startswith("UPDATE")] == [sent[-1][0]]
    queued = await ledger.in_states([pb.JOB_STATE_QUEUED])
    assert {job.id: job.wait for job in queued} == waits


async def test_jobs_are_counted_without_being_read(stores: SqlStores) -> None:
    ledger = await lead(stores)
    with statements() as sent:
        await ledger.counts()
    ((count, values),) = [each for each in sent if each[0].startswith("SELECT")]
    async with stores.database.read() as connection:
        plan = await connection.exec_driver_sql(f"explain query plan {count}", values)
        told = [row.detail for row in plan]
    assert len(told) == 1
    assert "USING COVERING INDEX" in told[0]
