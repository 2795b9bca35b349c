"""What projects may use in a month, and what they have used of it."""

from __future__ import annotations

from podium.jobs.v1 import job_service_pb2 as pb

from podium_controller.domain.budget import gpu_hours
from podium_controller.domain.timestamps import month_start, timestamp
from podium_controller.pools.projects import Projects
from podium_controller.store import UsageStore


class ProjectBudgets:
    """Of the projects of the installation's file that have one."""

    def __init__(self, projects: Projects, usage: UsageStore) -> None:
        self._projects = projects
        self._usage = usage

    async def told(self, project: str) -> list[pb.ProjectBudget]:
        """By name; of one project alone where it is named.

        Raises:
            DatabaseUnavailableError.
        """
        budgets = self._projects.with_budgets()
        wanted = sorted(name for name in budgets if project in ("", name))
        if not wanted:
            return []
        since = month_start()
        used = await self._usage.of_projects(since, project)
        return [
            pb.ProjectBudget(
                project=name,
                start_time=timestamp(since * 10**9),
                max_gpu_hours=budgets[name].max_gpu_hours,
                gpu_hours=gpu_hours(used.get(name, pb.Usage())),
                max_judge_cost=budgets[name].max_judge_cost,
                judge_cost=used.get(name, pb.Usage()).judge_cost,
            )
            for name in wanted
        ]
