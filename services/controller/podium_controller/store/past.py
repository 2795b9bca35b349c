"""What a job's rows say of its way so far."""

from __future__ import annotations

from podium.jobs.v1 import job_service_pb2 as pb
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_controller.domain.ports import Past
from podium_controller.store.tables import events, steps

COACH_EVENT_TYPES = (pb.EVENT_TYPE_WARNING, pb.EVENT_TYPE_RECOVERY)
"""Types of events that tell of what is well or not."""


async def past_of(connection: AsyncConnection, job_id: str, count: int) -> Past:
    """See `ports.Ledger.past`."""
    newest = (
        select(steps.c.body)
        .where(steps.c.job_id == job_id)
        .order_by(steps.c.number.desc())
        .limit(count)
    )
    bodies = (await connection.execute(newest)).scalars().all()
    said = (
        select(events.c.type, events.c.message)
        .where(events.c.job_id == job_id, events.c.type.in_(COACH_EVENT_TYPES))
        .order_by(events.c.sequence)
    )
    rows = (await connection.execute(said)).all()
    return Past(
        [pb.Step.FromString(body) for body in reversed(bodies)],
        [(row.type, row.message) for row in rows],
    )
