"""`podium eval …`: measure agents, and read what was measured before."""

from __future__ import annotations

import click

from podium.cli.default_group import DefaultGroup


@click.group(
    "eval",
    cls=DefaultGroup,
    default="run",
    short_help="Measure a policy, a baseline or another model.",
    lazy={
        "run": ("podium.cli.evaluation.run:evaluate", "Measure agents on an environment."),
        "list": ("podium.cli.evaluation.stored:list_evaluations", "List what is stored."),
        "show": ("podium.cli.evaluation.stored:show", "Show a stored evaluation."),
        "compare": (
            "podium.cli.evaluation.stored:compare_two",
            "Say how two stored evaluations differ.",
        ),
        "delete": ("podium.cli.evaluation.stored:delete", "Delete a stored evaluation."),
    },
)
def evaluation() -> None:
    """Measure agents on an environment's scenarios, and compare with what was measured before.

    `podium eval ENVIRONMENT -a AGENT` is `podium eval run ENVIRONMENT -a AGENT`; its options are
    told by `podium eval run --help`.
    """
