"""What projects may use, in a month and in all, and what they have used of it."""

from __future__ import annotations

from podium.jobs.v1 import job_service_pb2 as pb

from podium_controller.domain.budget import ProjectUse, gpu_hours
from podium_controller.domain.timestamps import month_start, timestamp
from podium_controller.pools.projects import ProjectLimits, Projects, use_of
from podium_controller.store import UsageStore


class ProjectBudgets:
    """Of the projects of the installation's file that have one."""

    def __init__(self, projects: Projects, usage: UsageStore) -> None:
        self._projects = projects
        self._usage = usage

    async def of(self, project: str) -> list[pb.ProjectBudget]:
        """By name; of one project alone where it is named.

        Raises:
            DatabaseUnavailableError.
        """
        budgets = self._projects.with_budgets()
        used = await use_of(budgets, self._usage.of_projects, project)
        return [_message(name, budgets[name], used[name]) for name in used]


def _message(project: str, limits: ProjectLimits, used: ProjectUse) -> pb.ProjectBudget:
    budget = pb.ProjectBudget(
        project=project,
        start_time=timestamp(month_start() * 10**9),
        max_gpu_hours=limits.max_gpu_hours,
        gpu_hours=gpu_hours(used.month),
        max_judge_cost=limits.max_judge_cost,
        judge_cost=used.month.judge_cost,
        max_total_gpu_hours=limits.max_total_gpu_hours,
        max_total_judge_cost=limits.max_total_judge_cost,
    )
    if limits.has_total:
        budget.total_gpu_hours = gpu_hours(used.total)
        budget.total_judge_cost = used.total.judge_cost
    return budget
