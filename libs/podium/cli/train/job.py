"""The job that `podium train` submits, or goes on with."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from importlib import resources
from pathlib import Path

from podium.cli.exits import CliError, Exit
from podium.cli.job.submit import load
from podium.cli.output import note
from podium.core.errors import UnavailableError
from podium.core.names import slug
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.sdk.client import AsyncClient
from podium.types.v1 import spec_pb2

PATIENCE_SECONDS = 150.0
_AGAIN_SECONDS = 0.5
_MAX_ID = 50
_UNFINISHED = (
    jobs.JOB_STATE_QUEUED,
    jobs.JOB_STATE_RUNNING,
    jobs.JOB_STATE_PAUSING,
    jobs.JOB_STATE_PAUSED,
)


def read_spec(
    file: Path | None, folder: Path, name: str, settings: Sequence[str]
) -> spec_pb2.JobSpec:
    """The job of a task: of `file`, else of job.yaml in its folder, else as of `podium init`.

    Raises:
        CliError: the file is wrong, or names another environment or where it is served.
    """
    if file is None and (folder / "job.yaml").exists():
        file = folder / "job.yaml"
    if file is None:
        from podium.cli.init import templates

        default = resources.files(templates) / templates.DEFAULT / "job.yaml"
        with resources.as_file(default) as path:
            spec = load(str(path), [*settings, f"environment.name={name}"]).spec
        note("no job.yaml beside the task: training as 'podium init' has it")
        return spec
    spec = load(str(file), settings).spec
    served = "address" if spec.environment.address else "image" if spec.environment.image else ""
    if served:
        raise CliError(
            f"{file}: environment.{served} is set, and 'podium train' serves the task itself",
            f"Leave it out, or submit the file: podium job submit -f {file} --follow",
            Exit.USAGE,
        )
    if spec.environment.name != name:
        raise CliError(
            f"{file}: environment.name is {spec.environment.name!r}, and the task's is {name!r}",
            "They must be the same.",
            Exit.USAGE,
        )
    return spec


async def begin(client: AsyncClient, spec: spec_pb2.JobSpec, *, new: bool) -> jobs.Job:
    """The unfinished job of this task, which goes on, or a new one.

    Raises:
        CliError: the unfinished one has other settings.
    """
    taken: set[str] = set()
    unfinished: jobs.Job | None = None
    async for job in client.jobs.list():
        taken.add(job.id)
        mine = (job.spec.environment.name, job.spec.environment.address) == (
            spec.environment.name,
            spec.environment.address,
        )
        if mine and job.state in _UNFINISHED and unfinished is None:
            unfinished = job
    if unfinished is not None and not new:
        return await _go_on(client, unfinished, spec)
    if unfinished is not None:
        await client.jobs.cancel(unfinished.id)
        note(f"cancelled {unfinished.id}")
    job_id, request_id = free_id(spec.environment.name, taken), uuid.uuid4().hex
    created = await patiently(
        lambda: client.jobs.create(spec, job_id=job_id, request_id=request_id)
    )
    note(f"job {created.id} created")
    return created


async def _go_on(client: AsyncClient, job: jobs.Job, spec: spec_pb2.JobSpec) -> jobs.Job:
    # What was submitted has its defaults filled in; so has this.
    checked = await patiently(lambda: client.jobs.create(spec, validate_only=True))
    done = f"{job.completed_steps} of {job.spec.training.steps} steps"
    if checked.spec != job.spec:
        raise CliError(
            f"the job {job.id} of this task is unfinished ({done}) and has other settings than "
            "are asked for now",
            "Ask as before and it goes on, or begin anew with --new, which cancels it.",
            Exit.CONFLICT,
        )
    if job.state in (jobs.JOB_STATE_PAUSED, jobs.JOB_STATE_PAUSING):
        job = await client.jobs.resume(job.id)
    note(f"going on with {job.id}, which has {done}; --new begins anew")
    return job


async def patiently(call: Callable[[], Awaitable[jobs.Job]]) -> jobs.Job:
    """The answer of a call that is made again while it is UNAVAILABLE.

    A controller that went on with a job before the engine was ready tries to reach it again only
    when its channel's backoff is over.

    Raises:
        UnavailableError: so it is still after `PATIENCE_SECONDS`.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await call()
        except UnavailableError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_AGAIN_SECONDS)


def free_id(name: str, taken: set[str]) -> str:
    """An id for a task's next job: `mytask`, `mytask-2`, …"""
    base = slug(name)[:_MAX_ID].strip("-") or "job"
    if not base[0].isalpha():
        base = f"task-{base}"
    number = 1
    while (found := base if number == 1 else f"{base}-{number}") in taken:
        number += 1
    return found
