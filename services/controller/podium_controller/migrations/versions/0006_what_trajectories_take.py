"""How much room the trajectories of each step take, counted once from what is stored."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# As old as the step that consumed them; else as old as their job.
_FILL = """
    insert into trajectory_sums (job_id, evaluation, step, mode, groups, bytes, time)
    select found.job_id, found.evaluation, found.step, found.mode, found.groups, found.bytes,
           coalesce(case when found.evaluation then null else steps.commit_time end,
                    jobs.end_time, jobs.create_time)
    from (
        select job_id, evaluation, step, mode, count(*) as groups, sum(length(body)) as bytes
        from trajectory_groups
        group by job_id, evaluation, step, mode
    ) as found
    join jobs on jobs.id = found.job_id
    left join steps on steps.job_id = found.job_id and steps.number = found.step
"""


def upgrade() -> None:
    op.create_table(
        "trajectory_sums",
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.Column("evaluation", sa.Boolean(), nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("groups", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("delete_time", sa.BigInteger()),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_trajectory_sums_job_id"),
        sa.PrimaryKeyConstraint("job_id", "evaluation", "step", "mode", name="pk_trajectory_sums"),
    )
    op.execute(_FILL)


def downgrade() -> None:
    op.drop_table("trajectory_sums")
