"""`podium scenarios …`."""

from __future__ import annotations

import click

from podium.cli.lazy import LazyGroup


@click.group(
    cls=LazyGroup,
    short_help="Make and check files of scenarios.",
    lazy={
        "generate": (
            "podium.cli.scenarios.generate:generate",
            "Have a model write tasks for an agent with certain tools.",
        ),
        "check": ("podium.cli.scenarios.check:check", "Read scenarios as a job would."),
    },
)
def scenarios() -> None:
    """Make and check files of scenarios, which any environment takes as `config.scenarios`."""
