"""Projects: a real controller with limits from a file, on doubles over real gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError
from podium.types.v1 import spec_pb2
from support.controlled import (
    running_controller,
    small_job,
)
from support.fleet import Fleet, fleet_of_doubles
from support.processes import RegistryProcess, running_registry


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryProcess]:
    yield from running_registry()


@pytest.fixture
async def fleet(registry: RegistryProcess) -> AsyncIterator[Fleet]:
    """One pool of adapters, and room for many trainers."""
    async with fleet_of_doubles(registry) as running:
        running.trainer.rooms = 8
        running.inference.adapters = True
        yield running


def limits(folder: Path, text: str) -> dict[str, Any]:
    """Settings of a controller with these projects."""
    path = folder / "projects.yaml"
    path.write_text(text)
    return {"projects_file": path, "max_active_jobs": 8}


def job_of(project: str, steps: int = 1) -> spec_pb2.JobSpec:
    return small_job(steps, project=project)


async def test_a_project_that_the_file_does_not_name_is_refused(
    fleet: Fleet, tmp_path: Path
) -> None:
    async with running_controller(fleet, **limits(tmp_path, "a: {}\n")) as client:
        with pytest.raises(InvalidArgumentError) as raised:
            await client.create(job_of("other"))
        (violation,) = raised.value.violations
        assert violation.field == "job.spec.project"
        assert violation.description == "got 'other'; allowed are a, default"
        with pytest.raises(InvalidArgumentError) as raised:
            await client.create(job_of("No Name"))
        assert raised.value.violations[0].field == "job.spec.project"
    async with running_controller(fleet, "without-a-file") as client:
        await client.create(job_of("other"), validate_only=True)
