"""`podium trajectory …`: episodes, read one by one or taken away."""

from __future__ import annotations

import click

from podium.cli.lazy import LazyGroup


@click.group(
    cls=LazyGroup,
    short_help="List, read and export a job's episodes.",
    lazy={
        "list": ("podium.cli.trajectory.listing:list_trajectories", "List a job's episodes."),
        "show": ("podium.cli.trajectory.show:show", "Read an episode turn by turn."),
        "export": ("podium.cli.trajectory.export:export", "Write episodes to a file."),
    },
)
def trajectory() -> None:
    """List, read and export a job's episodes."""
