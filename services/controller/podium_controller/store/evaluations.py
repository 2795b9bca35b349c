"""Evaluations that clients store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from podium.core.errors import AlreadyExistsError, NotFoundError, ResourceExhaustedError
from podium.jobs.v1 import evaluation_service_pb2 as pb
from sqlalchemy import ColumnElement, Row, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_controller.domain.identifiers import new_evaluation_id
from podium_controller.domain.stored_evaluations import NewEvaluation
from podium_controller.domain.timestamps import now_ns, timestamp
from podium_controller.store.database import Database
from podium_controller.store.tables import scenario_results, stored_evaluations

_COLUMNS = stored_evaluations.c
_ATTEMPTS = 5
_ROWS_AT_ONCE = 1000
_DAY_NS = 86400 * 10**9


@dataclass(frozen=True)
class EvaluationFilter:
    """Which evaluations are asked for; an empty text asks for all."""

    project: str = ""
    environment: str = ""
    job_id: str = ""
    name: str = ""

    def conditions(self) -> list[ColumnElement[bool]]:
        """For a query of stored evaluations."""
        asked = {
            _COLUMNS.project: self.project,
            _COLUMNS.environment: self.environment,
            _COLUMNS.job_id: self.job_id,
            _COLUMNS.name: self.name,
        }
        return [column == value for column, value in asked.items() if value]


class EvaluationStore:
    """Every method can raise DatabaseUnavailableError."""

    def __init__(self, database: Database, max_bytes: int = 0, days: float = 0.0) -> None:
        """`max_bytes` is what all may take together, `days` how old they may become; 0: any."""
        self._database = database
        self._max_bytes = max_bytes
        self._days = days

    async def store(self, new: NewEvaluation) -> pb.StoredEvaluation:
        """Stores an evaluation whole; the same request again returns the one stored before.

        What is older than it may be goes first.

        Raises:
            AlreadyExistsError: the request id was used with another body, or its evaluation was
                deleted.
            ResourceExhaustedError: there is no room.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with self._database.write() as connection:
                    made = await _replay(connection, new)
                    if made is not None:
                        return made
                    if self._days:
                        await _expire(connection, now_ns() - int(self._days * _DAY_NS))
                    full = await self._full(connection, new)
                    if full is None:
                        return await _insert(connection, new)
                # Outside: what a transaction runs out of is told as the database's own.
                raise full
            except IntegrityError:
                # Another replica took the id, or stored the same request: the next look tells.
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    async def get(self, evaluation_id: str) -> pb.StoredEvaluation:
        """Reads an evaluation.

        Raises:
            NotFoundError: there is none.
        """
        async with self._database.read() as connection:
            row = await _live(connection, evaluation_id)
        return pb.StoredEvaluation.FromString(row.body)

    async def page(
        self, wanted: EvaluationFilter, before: int | None, limit: int
    ) -> tuple[list[pb.StoredEvaluation], int | None]:
        """Evaluations, newest first, below a number; and where the next page begins."""
        query = select(_COLUMNS.number, _COLUMNS.body).where(
            _COLUMNS.deleted.is_(False), *wanted.conditions()
        )
        if before is not None:
            query = query.where(_COLUMNS.number < before)
        query = query.order_by(_COLUMNS.number.desc()).limit(limit + 1)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
        page = [pb.StoredEvaluation.FromString(row.body) for row in rows[:limit]]
        return page, rows[limit - 1].number if len(rows) > limit else None

    async def results(
        self, evaluation_id: str, after: int, limit: int, max_bytes: int
    ) -> tuple[list[pb.ScenarioResult], int | None]:
        """Scenarios after a position, from 0; and where the next page begins after.

        Args:
            after: -1 for the first page.
            max_bytes: a page ends before it grows beyond this, but holds one at least.

        Raises:
            NotFoundError: there is no such evaluation.
        """
        columns = scenario_results.c
        async with self._database.read() as connection:
            row = await _live(connection, evaluation_id)
            query = (
                select(columns.position, columns.body)
                .where(columns.evaluation == row.number, columns.position > after)
                .order_by(columns.position)
                .limit(limit + 1)
            )
            rows = (await connection.execute(query)).all()
        taken, size = 0, 0
        for each in rows[:limit]:
            size += len(each.body)
            if taken and size > max_bytes:
                break
            taken += 1
        page = [pb.ScenarioResult.FromString(each.body) for each in rows[:taken]]
        return page, rows[taken - 1].position if len(rows) > taken else None

    async def delete(self, evaluation_id: str) -> None:
        """Deletes an evaluation; idempotent.

        Raises:
            NotFoundError: there never was one.
        """
        async with self._database.write() as connection:
            query = select(_COLUMNS.number).where(_COLUMNS.id == evaluation_id)
            number = (await connection.execute(query)).scalar_one_or_none()
            if number is None:
                raise _no_evaluation(evaluation_id)
            await _delete(connection, [number])

    async def _full(
        self, connection: AsyncConnection, new: NewEvaluation
    ) -> ResourceExhaustedError | None:
        query = select(func.coalesce(func.sum(_COLUMNS.bytes), 0))
        taken = int((await connection.execute(query)).scalar_one())
        size = _size(new)
        if not self._max_bytes or taken + size <= self._max_bytes:
            return None
        return ResourceExhaustedError(
            f"stored evaluations take {taken} of {self._max_bytes} bytes, which leaves no room for"
            f" {size}: delete some (`podium eval delete`), or raise"
            " PODIUM_CONTROLLER_EVALUATION_STORE_MAX_BYTES",
            reason="EVALUATIONS_FULL",
            metadata={"bytes": str(taken), "limit": str(self._max_bytes)},
        )


def _size(new: NewEvaluation) -> int:
    return new.evaluation.ByteSize() + sum(result.ByteSize() for result in new.results)


async def _replay(connection: AsyncConnection, new: NewEvaluation) -> pb.StoredEvaluation | None:
    query = select(stored_evaluations).where(_COLUMNS.request_id == new.request_id)
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        return None
    metadata = {"request_id": new.request_id, "evaluation_id": row.id}
    if row.digest != new.digest:
        raise AlreadyExistsError(
            f"request_id {new.request_id!r} was used with another body",
            reason="REQUEST_ID_REUSED",
            metadata=metadata,
        )
    if row.deleted:
        raise AlreadyExistsError(
            f"request_id {new.request_id!r} stored the evaluation {row.id}, which was deleted",
            reason="EVALUATION_DELETED",
            metadata=metadata,
        )
    return pb.StoredEvaluation.FromString(row.body)


async def _insert(connection: AsyncConnection, new: NewEvaluation) -> pb.StoredEvaluation:
    stored, now = pb.StoredEvaluation(), now_ns()
    stored.CopyFrom(new.evaluation)
    stored.id = new_evaluation_id()
    stored.create_time.CopyFrom(timestamp(now))
    made = await connection.execute(
        insert(stored_evaluations)
        .values(
            id=stored.id,
            name=stored.name,
            project=stored.project,
            environment=stored.environment.name,
            job_id=stored.policy.job,
            create_time=now,
            request_id=new.request_id,
            digest=new.digest,
            body=stored.SerializeToString(deterministic=True),
            bytes=_size(new),
            deleted=False,
        )
        .returning(_COLUMNS.number)
    )
    number = made.scalar_one()
    rows = [
        {"evaluation": number, "position": position, "body": result.SerializeToString()}
        for position, result in enumerate(new.results)
    ]
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        await connection.execute(insert(scenario_results), rows[first : first + _ROWS_AT_ONCE])
    return stored


async def _expire(connection: AsyncConnection, before: int) -> None:
    query = select(_COLUMNS.number).where(
        _COLUMNS.create_time < before, _COLUMNS.deleted.is_(False)
    )
    await _delete(connection, (await connection.execute(query)).scalars().all())


async def _delete(connection: AsyncConnection, numbers: Sequence[int]) -> None:
    for number in numbers:
        await connection.execute(
            delete(scenario_results).where(scenario_results.c.evaluation == number)
        )
        await connection.execute(
            update(stored_evaluations)
            .where(_COLUMNS.number == number)
            .values(deleted=True, body=b"", bytes=0)
        )


async def _live(connection: AsyncConnection, evaluation_id: str) -> Row[Any]:
    query = select(stored_evaluations).where(
        _COLUMNS.id == evaluation_id, _COLUMNS.deleted.is_(False)
    )
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise _no_evaluation(evaluation_id)
    return row


def _no_evaluation(evaluation_id: str) -> NotFoundError:
    return NotFoundError(
        f"there is no stored evaluation {evaluation_id!r}",
        reason="EVALUATION_NOT_FOUND",
        metadata={"evaluation_id": evaluation_id},
    )
