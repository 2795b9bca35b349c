"""What judges have used, in the database."""

from __future__ import annotations

from podium.judge.v1 import judge_service_pb2 as judge_pb
from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_controller.store.tables import jobs, judge_usage

_COUNTS = ("calls", "prompt_tokens", "completion_tokens", "cost", "cached")


async def add_usage(
    connection: AsyncConnection, job_id: str, month: str, usage: judge_pb.JudgeUsage
) -> None:
    """Adds to what a job has used in a month. The caller holds the lock of the job's row."""
    if not usage.ByteSize():
        return
    columns = judge_usage.c
    added = await connection.execute(
        update(judge_usage)
        .where(columns.job_id == job_id, columns.month == month)
        .values({name: columns[name] + getattr(usage, name) for name in _COUNTS})
    )
    if added.rowcount:
        return
    project = (
        await connection.execute(select(jobs.c.project).where(jobs.c.id == job_id))
    ).scalar_one()
    counts = {name: getattr(usage, name) for name in _COUNTS}
    await connection.execute(
        insert(judge_usage).values(job_id=job_id, month=month, project=project, **counts)
    )


async def usage_of(connection: AsyncConnection, job_id: str) -> judge_pb.JudgeUsage:
    """What a job has used, in all months."""
    columns = [func.coalesce(func.sum(judge_usage.c[name]), 0).label(name) for name in _COUNTS]
    row = (await connection.execute(select(*columns).where(judge_usage.c.job_id == job_id))).one()
    return judge_pb.JudgeUsage(
        calls=int(row.calls),
        prompt_tokens=int(row.prompt_tokens),
        completion_tokens=int(row.completion_tokens),
        cost=float(row.cost),
        cached=int(row.cached),
    )


async def project_tokens(connection: AsyncConnection, project: str, month: str) -> int:
    """Tokens, read and written, of all jobs of a project in a month; deleted jobs' too."""
    return (await tokens_by_project(connection, month, project)).get(project, 0)


async def tokens_by_project(
    connection: AsyncConnection, month: str, project: str | None = None
) -> dict[str, int]:
    """As `project_tokens`, of every project that has used any, or of one alone."""
    columns = judge_usage.c
    tokens = func.sum(columns.prompt_tokens + columns.completion_tokens).label("tokens")
    query = select(columns.project, tokens).where(columns.month == month)
    if project is not None:
        query = query.where(columns.project == project)
    rows = (await connection.execute(query.group_by(columns.project))).all()
    return {row.project: int(row.tokens) for row in rows}
