"""Projects and their limits, from the installation's file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml
from podium.core.errors import InvalidArgumentError, Violation
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from podium_controller.domain.budget import gpu_hours
from podium_controller.domain.identifiers import DEFAULT_PROJECT

_OTHER = "other"


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

    @property
    def has_budget(self) -> bool:
        """Whether its jobs pause when it has used as much as it may."""
        return self.max_gpu_hours is not None or self.max_judge_cost is not None

    def exhausted(self, project: str, used: pb.Usage) -> str:
        """Which bounds of a month's usage are reached, for people; empty for none."""
        amounts = (
            ("maxGpuHours", self.max_gpu_hours, gpu_hours(used)),
            ("maxJudgeCost", self.max_judge_cost, used.judge_cost),
        )
        reached = [
            f"{name} is {most:.12g} and it has used {amount:.12g}"
            for name, most, amount in amounts
            if most is not None and amount >= most
        ]
        return f"of the project {project!r} {'; '.join(reached)} this month" if reached else ""

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
            found = yaml.safe_load(path.read_text())
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
