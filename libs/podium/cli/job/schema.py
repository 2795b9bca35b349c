"""`podium job schema` and `podium job init`: what a job file may say."""

from __future__ import annotations

import click

from podium.cli.output import data, plain_output_option, table


@click.command(short_help="List every key of a job file.")
@plain_output_option
def schema(output: str) -> None:
    """List every key of a job file with its type, default and range.

    -o json prints a JSON Schema, which editors use to check and complete job
    files.
    """
    from podium.cli.contract_docs import json_schema
    from podium.core.contract import describe_fields
    from podium.core.contract import fork_alias as fork
    from podium.types.v1 import spec_pb2

    if output != "table":
        whole = json_schema(spec_pb2.JobSpec)
        fork.widen(whole)
        data(whole, output)
        return
    rows = [
        (
            row.path,
            row.type,
            row.default or ("required" if row.required else ""),
            f"{row.allowed} or an alias" if row.path == fork.KEY else row.allowed,
        )
        for row in describe_fields(spec_pb2.JobSpec)
    ]
    table(("KEY", "TYPE", "DEFAULT", "ALLOWED"), rows)


@click.command(short_help="Print a commented job file to start from.")
def init() -> None:
    """Print a job file that trains the email-search agent, with every other key as a comment."""
    from podium.cli.contract_docs import template
    from podium.types.v1 import spec_pb2

    click.echo(template(spec_pb2.JobSpec, _START), nl=False)


_START = {
    "base_model": "smollm2-135m-instruct",
    "environment.name": "email_search",
    "training.steps": "20",
    "training.learning_rate": "2e-4",
    "evaluation.scenarios": "100",
    "evaluation.greedy": "true",
}
"""The keys that the template sets; all others are commented out."""
