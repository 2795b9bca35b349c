"""Which trackers this installation serves, and whose jobs may name which of their secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from podium.core.errors import InvalidArgumentError, Violation
from podium.types.v1 import spec_pb2
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from podium_controller.pools.projects import Projects, project_of

_FIELD = "tracking_secrets_file"


class _Secret(BaseModel):
    """Who may name a secret."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    projects: list[str] | None = None
    """None for every project."""


_FILE = TypeAdapter(dict[str, _Secret])


@dataclass(frozen=True)
class Trackers:
    """What is known of the tracking service, which is a client and says nothing of itself."""

    running: bool | None = None
    """Whether there is one; None for not known."""
    secrets: Mapping[str, _Secret] | None = None
    """By name; None where they are not known here, and any may be named."""

    @classmethod
    def load(cls, running: bool | None, path: Path | None, projects: Projects) -> Trackers:
        """Reads the file: by the secrets' names, `projects` that may use them, as YAML.

        Raises:
            InvalidArgumentError: it is not there, is no YAML, says what there is not, or names a
                project that there is not; with every violation.
        """
        if path is None:
            return cls(running)
        try:
            secrets = _FILE.validate_python(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise InvalidArgumentError(
                violations=[Violation(_FIELD, f"got {str(path)!r}: {error}")]
            ) from error
        except ValidationError as error:
            raise InvalidArgumentError(
                violations=[
                    Violation(
                        ".".join((_FIELD, *map(str, wrong["loc"]))),
                        f"got {wrong['input']!r}: {wrong['msg']}",
                    )
                    for wrong in error.errors(include_url=False)
                ]
            ) from error
        unknown = [
            Violation(f"{_FIELD}.{name}.projects.{at}", wrong.description)
            for name, secret in secrets.items()
            for at, project in enumerate(secret.projects or ())
            for wrong in projects.violations(project)
        ]
        if unknown:
            raise InvalidArgumentError(violations=unknown)
        return cls(running, secrets)

    def violations(self, spec: spec_pb2.JobSpec) -> list[Violation]:
        """Secrets that the job names and its project may not use, or that there are not.

        Which of the two it is, is not told: what other projects have is theirs to know.
        """
        if self.secrets is None:
            return []
        project = project_of(spec)
        own = sorted(
            name
            for name, secret in self.secrets.items()
            if secret.projects is None or project in secret.projects
        )
        allowed = ", ".join(own) or "none: leave it out for the service's own variables"
        return [
            Violation(
                f"job.spec.tracking.{tracker}.secret",
                f"got {name!r}; allowed for the project {project!r} are {allowed}",
            )
            for tracker, name in _named(spec).items()
            if name and name not in own
        ]

    def warnings(self, spec: spec_pb2.JobSpec) -> list[str]:
        """That nobody tells the trackers that the job names."""
        named = _named(spec)
        if self.running is not False or not named:
            return []
        return [
            f"job.spec.tracking: got {', '.join(named)}; this installation has no tracking service,"
            " and they are told nothing until it has one (`podium up --tracking`, tracking.enabled"
            " of the chart)"
        ]


def _named(spec: spec_pb2.JobSpec) -> dict[str, str]:
    """The secrets of the trackers that the job names; empty for the service's own variables."""
    return {
        each.name: str(getattr(value, "secret", ""))
        for each, value in spec.tracking.ListFields()
        if each.message_type is not None
    }
