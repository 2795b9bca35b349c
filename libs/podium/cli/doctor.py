"""`podium doctor`: find out what is wrong, and what to do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from podium.cli.connection import address_option, context_option, data_dir_option
from podium.cli.exits import Exit
from podium.cli.findings import failed, show
from podium.cli.output import data, note, plain_output_option


@click.command(short_help="Find out what is wrong, and what to do.")
@address_option
@context_option
@data_dir_option
@click.option(
    "--model", default="smollm2-135m-instruct", show_default=True, help="Base model to look for."
)
@plain_output_option
def doctor(address: str, context: str, data_dir: Path | None, model: str, output: str) -> int:
    """Check versions, services, ports, the base model, disk, memory and CPU.

    Every finding that needs something done says what. Exit code 1 when a
    check fails.
    """
    from podium.cli.checks import checks_without_stack, every_check
    from podium.core.errors import NotFoundError
    from podium.sdk.connection.addresses import locate

    try:
        findings = asyncio.run(every_check(locate(address, data_dir, context), data_dir, model))
    except NotFoundError as error:
        if error.reason != "NO_STACK":
            raise
        findings = asyncio.run(checks_without_stack(error.message, data_dir, model))
    if output != "table":
        data([vars(finding) for finding in findings], output)
    else:
        show(findings)
    if broken := failed(findings):
        note(f"{len(broken)} of {len(findings)} checks failed")
        return Exit.FAILED
    return Exit.OK
