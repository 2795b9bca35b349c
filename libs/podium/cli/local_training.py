"""What `podium train` and `make demo` share: a stack of this machine, and a job followed there."""

from __future__ import annotations

from pathlib import Path

from podium.cli.exits import CliError
from podium.cli.progress import JobProgress
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.local.launcher import LauncherConfig, layout
from podium.sdk.client import AsyncClient

_RECONNECT_SECONDS = 900.0


def stack_config(
    data_dir: Path, model: str, ready_timeout_seconds: float = 300.0
) -> LauncherConfig:
    """The default ports, so that other commands find the stack; free ones when they are taken."""
    ports = layout.choose_ports(layout.DEFAULT_PORT_BASE).values()
    free = all(layout.is_free(port) for service in ports for port in vars(service).values() if port)
    return LauncherConfig(
        data_dir=data_dir,
        port_base=layout.DEFAULT_PORT_BASE if free else 0,
        model=model,
        ready_timeout_seconds=ready_timeout_seconds,
    )


async def follow(client: AsyncClient, job_id: str) -> jobs.Job:
    """Tells a job's progress until it has ended, and returns it."""
    progress = JobProgress()
    try:
        async for update in client.jobs.watch(
            job_id,
            reconnect_seconds=_RECONNECT_SECONDS,
            on_reconnect=lambda _, delay: progress.lost(delay),
        ):
            progress.update(update)
    finally:
        progress.close()
    return await client.jobs.get(job_id)


def need_success(job: jobs.Job, data_dir: Path) -> None:
    """Raises CliError unless the job succeeded."""
    if job.state != jobs.JOB_STATE_SUCCEEDED:
        state = jobs.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()
        raise CliError(
            f"the job {job.id} {state}{f': {job.failure_message}' if job.failure_message else ''}",
            f"Logs are in {data_dir / 'logs'}.",
        )
