"""`podium doctor`: find out what is wrong, and what to do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from podium.cli.connection import data_dir_option
from podium.cli.exits import Exit
from podium.cli.output import data, note

_SIGNS = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}


@click.command(short_help="Find out what is wrong, and what to do.")
@click.option("--address", metavar="HOST:PORT", default="", help="The controller.")
@data_dir_option
@click.option(
    "--model", default="smollm2-135m-instruct", show_default=True, help="Base model to look for."
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table")
def doctor(address: str, data_dir: Path | None, model: str, output: str) -> int:
    """Check versions, services, ports, the base model, disk, memory and CPU.

    Every finding that needs something done says what. Exit code 1 when a
    check fails.
    """
    from podium.cli.checks import every_check

    findings = asyncio.run(every_check(address, data_dir, model))
    if output != "table":
        data([vars(finding) for finding in findings], output)
    else:
        for finding in findings:
            sign, colour = _SIGNS[finding.status]
            click.echo(f"{click.style(sign, fg=colour)}  {finding.name:<12}{finding.detail}")
            if finding.advice:
                click.echo(f"{'':18}-> {finding.advice}")
    failed = [finding for finding in findings if finding.status == "fail"]
    if failed:
        note(f"{len(failed)} of {len(findings)} checks failed")
        return Exit.FAILED
    return Exit.OK
