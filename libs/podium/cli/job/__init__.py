"""`podium job …`."""

from __future__ import annotations

import click

from podium.cli.lazy import LazyGroup


@click.group(
    cls=LazyGroup,
    short_help="Submit, watch and steer training jobs.",
    lazy={
        "init": ("podium.cli.job.schema:init", "Print a commented job file to start from."),
        "schema": ("podium.cli.job.schema:schema", "List every key of a job file."),
        "submit": ("podium.cli.job.submit:submit", "Submit a job file."),
        "list": ("podium.cli.job.manage:list_jobs", "List jobs, newest first."),
        "get": ("podium.cli.job.manage:get", "Show a job."),
        "watch": ("podium.cli.job.watch:watch", "Follow a job's progress."),
        "pause": ("podium.cli.job.manage:pause", "Stop a job after its step."),
        "resume": ("podium.cli.job.manage:resume", "Let a paused job go on."),
        "cancel": ("podium.cli.job.manage:cancel", "Stop a job for good."),
        "delete": ("podium.cli.job.manage:delete", "Delete a job that has ended."),
        "events": ("podium.cli.job.records:events", "List what happened to a job."),
        "steps": ("podium.cli.job.records:steps", "List a job's training steps."),
        "metrics": ("podium.cli.job.metrics:metrics", "Show or draw the numbers of a job's steps."),
        "evaluations": ("podium.cli.job.records:evaluations", "List a job's evaluations."),
        "trajectories": ("podium.cli.job.records:trajectories", "List or read a job's episodes."),
        "logs": ("podium.cli.job.logs:logs", "Show a job's events and what its services wrote."),
        "report": ("podium.cli.job.report:report", "Write one HTML page about a job."),
    },
)
def job() -> None:
    """Submit, watch and steer training jobs."""
