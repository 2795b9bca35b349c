"""Projects and their limits, from the installation's file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import yaml
from podium.core.errors import InvalidArgumentError, Violation
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from podium_controller.domain.budget import (
    PROJECT_BUDGET_EXHAUSTED,
    PROJECT_TOTAL_EXHAUSTED,
    ProjectUse,
    gpu_hours,
)
from podium_controller.domain.identifiers import DEFAULT_PROJECT
from podium_controller.domain.timestamps import month_start
from podium_controller.domain.waits import Wait

_OTHER = "other"


class Bound(NamedTuple):
    """One bound of a project's budget."""

    name: str
    """As the file has it."""
    most: float
    used: float
    of_all_time: bool


class ProjectLimits(BaseModel):
    """What a project may have. None for no limit but the installation's."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, strict=True)

    max_active_jobs: int | None = Field(default=None, ge=0)
    """Jobs that run."""
    max_gpus: int | None = Field(default=None, ge=0)
    """GPUs of the trainers of those."""
    max_pool_share: float | None = Field(default=None, gt=0, le=1)
    """Of a pool's episodes; also how its share weighs against those of other projects."""

    max_judge_tokens: int | None = Field(default=None, ge=0)
    """Tokens that the judges of its jobs read and write in a calendar month, UTC."""
    max_gpu_hours: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """GPU hours of its jobs, of their trainers and their shares of pools, in such a month."""
    max_judge_cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """What its jobs' judges cost in such a month, by their prices."""
    max_total_gpu_hours: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """GPU hours as above, of all time: no month gives them back."""
    max_total_judge_cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """What its jobs' judges cost in all time."""

    @property
    def has_budget(self) -> bool:
        """Whether its jobs pause when it has used as much as it may."""
        months = self.max_gpu_hours is not None or self.max_judge_cost is not None
        return months or self.has_total

    @property
    def has_total(self) -> bool:
        """Whether a budget of it is of all time."""
        return self.max_total_gpu_hours is not None or self.max_total_judge_cost is not None

    def bounds(self, used: ProjectUse) -> list[Bound]:
        """Those that are set, with what is used of each."""
        found = (
            ("maxTotalGpuHours", self.max_total_gpu_hours, gpu_hours(used.total), True),
            ("maxTotalJudgeCost", self.max_total_judge_cost, used.total.judge_cost, True),
            ("maxGpuHours", self.max_gpu_hours, gpu_hours(used.month), False),
            ("maxJudgeCost", self.max_judge_cost, used.month.judge_cost, False),
        )
        return [
            Bound(name, most, amount, of_all_time)
            for name, most, amount, of_all_time in found
            if most is not None
        ]

    def exhausted(self, project: str, used: ProjectUse) -> Wait | None:
        """Why its jobs rest or wait; None where it may use more.

        A total names itself first: what is waited for then is no month.
        """
        reached = [bound for bound in self.bounds(used) if bound.used >= bound.most]
        if not reached:
            return None
        forever = reached[0].of_all_time
        shown = [bound for bound in reached if bound.of_all_time == forever]
        words = "; ".join(
            f"{bound.name} is {bound.most:.12g} and it has used {bound.used:.12g}"
            for bound in shown
        )
        return Wait(
            PROJECT_TOTAL_EXHAUSTED if forever else PROJECT_BUDGET_EXHAUSTED,
            f"of the project {project!r} {words} {'in all' if forever else 'this month'}",
        )

    @property
    def weight(self) -> float:
        """Of two projects that want a pool, one of twice the weight gets twice as much."""
        return self.max_pool_share or 1.0


_FILE = TypeAdapter(dict[str, ProjectLimits])
_UNLIMITED = ProjectLimits()


class Projects:
    """Which projects there are. Without any, every name is one, without limits."""

    def __init__(self, limits: Mapping[str, ProjectLimits] | None = None) -> None:
        """`limits` are by name; `default` is a project whether it is among them or not."""
        self._limits = dict(limits or {})

    @classmethod
    def load(cls, path: Path | None) -> Projects:
        """Reads the file: limits by the projects' names, as YAML. None for no file.

        Raises:
            InvalidArgumentError: it is not there, is no YAML, or says what
                there is not, with every violation.
        """
        if path is None:
            return cls()
        try:
            found = yaml.safe_load(path.read_text(encoding="utf-8"))
            return cls(_FILE.validate_python(found or {}))
        except (OSError, yaml.YAMLError) as error:
            raise InvalidArgumentError(
                violations=[Violation("projects_file", f"got {str(path)!r}: {error}")]
            ) from error
        except ValidationError as error:
            raise InvalidArgumentError(
                violations=[
                    Violation(
                        ".".join(("projects_file", *map(str, wrong["loc"]))),
                        f"got {wrong['input']!r}: {wrong['msg']}",
                    )
                    for wrong in error.errors(include_url=False)
                ]
            ) from error

    def of(self, project: str) -> ProjectLimits:
        """A project's limits; none of one that the file names no more."""
        return self._limits.get(project, _UNLIMITED)

    def with_budgets(self) -> dict[str, ProjectLimits]:
        """Those whose jobs pause when they have used as much as they may, by name."""
        return {name: each for name, each in self._limits.items() if each.has_budget}

    def violations(self, project: str) -> list[Violation]:
        """What is wrong with a new job's project."""
        allowed = sorted(self._limits.keys() | {DEFAULT_PROJECT})
        if not self._limits or project in allowed:
            return []
        text = f"got {project!r}; allowed are {', '.join(allowed)}"
        return [Violation("job.spec.project", text)]

    def label(self, project: str) -> str:
        """A project in metrics, where only names of the installation's choice may stand."""
        known = project == DEFAULT_PROJECT or project in self._limits
        return project if known else _OTHER

    def labels(self) -> list[str]:
        """All that `label` may give."""
        return sorted({*self._limits, DEFAULT_PROJECT, _OTHER})


def project_of(spec: spec_pb2.JobSpec) -> str:
    """A job's project; jobs from before there were any are of the default one."""
    return spec.project or DEFAULT_PROJECT


async def use_of(
    budgets: Mapping[str, ProjectLimits],
    of_projects: Callable[[int, str], Awaitable[Mapping[str, pb.Usage]]],
    project: str = "",
) -> dict[str, ProjectUse]:
    """What projects with a budget have used, by name.

    Args:
        of_projects: `ports.UsageBook.of_projects`.
        project: only this one's; empty for all.

    Raises:
        DatabaseUnavailableError.
    """
    wanted = sorted(name for name in budgets if project in ("", name))
    if not wanted:
        return {}
    months = await of_projects(month_start(), project)
    totals: Mapping[str, pb.Usage] = {}
    if any(budgets[name].has_total for name in wanted):
        totals = await of_projects(0, project)
    nothing = pb.Usage()
    return {
        name: ProjectUse(months.get(name, nothing), totals.get(name, nothing)) for name in wanted
    }
