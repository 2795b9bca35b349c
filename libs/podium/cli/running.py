"""`podium down` and `status`: what `podium up` runs."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import click

from podium.cli.connection import data_dir_option
from podium.cli.exits import CliError, Exit
from podium.cli.output import data, note, plain_output_option, table


@click.command(short_help="Stop what 'up' runs.")
@data_dir_option
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds to wait.")
def down(data_dir: Path | None, timeout: float) -> None:
    """Stop a running 'podium up' and wait until it has ended."""
    from podium.local.launcher import upfile

    folder = _running(data_dir)
    running = upfile.read(folder)
    if running is None:
        return
    ask_to_end(running.pid, folder)
    deadline = time.monotonic() + timeout
    while upfile.read(folder) is not None:
        if time.monotonic() > deadline:
            raise CliError(
                f"process {running.pid} has not ended after {timeout:g} seconds",
                f"'kill -9 {running.pid}' ends it and its services at once.",
                Exit.TIMEOUT,
            )
        time.sleep(0.1)
    note(f"stopped what ran in {folder}")


def ask_to_end(process: int, folder: Path) -> None:
    """Sends SIGTERM to the launcher of the stack in a folder.

    Raises:
        CliError: it is another user's.
    """
    try:
        os.kill(process, signal.SIGTERM)
    except PermissionError:
        raise CliError(
            f"what runs in {folder} is another user's: process {process}",
            "Only who started it can stop it.",
            Exit.AUTH,
        ) from None


@click.command(short_help="Show what 'up' runs.")
@data_dir_option
@plain_output_option
def status(data_dir: Path | None, output: str) -> int:
    """Show each service of a running 'podium up' with its address and health."""
    from podium.local.launcher import health, upfile
    from podium.local.launcher.layout import READINESS

    folder = _running(data_dir)
    running = upfile.read(folder)
    if running is None:
        return Exit.UNREACHABLE

    async def states() -> list[str]:
        checks = (
            health.check(entry.health_address, READINESS[name])
            for name, entry in running.services.items()
        )
        return await asyncio.gather(*checks)

    healths = asyncio.run(states())
    if output == "table":
        table(
            ("SERVICE", "HEALTH", "ADDRESS", "METRICS", "PID"),
            [
                (name, state, entry.address, entry.metrics_address, str(entry.pid or "-"))
                for (name, entry), state in zip(running.services.items(), healths, strict=True)
            ],
        )
        note(f"model {running.model}, data in {folder}")
        if running.openai_base_url:
            note(f"OpenAI API at {running.openai_base_url}")
    else:
        services = {
            name: {**vars(entry), "health": state}
            for (name, entry), state in zip(running.services.items(), healths, strict=True)
        }
        data({**vars(running), "services": services, "data_dir": str(folder)}, output)
    return Exit.OK if all(state == "SERVING" for state in healths) else Exit.UNREACHABLE


def _running(data_dir: Path | None) -> Path:
    from podium.local.launcher import upfile
    from podium.sdk.connection.addresses import data_dir_in_use

    folder = data_dir or data_dir_in_use() or upfile.find()
    if folder is None or upfile.read(folder) is None:
        where = f"in {folder}" if folder else "here (no .podium in this folder or above)"
        raise CliError(
            f"nothing runs {where}",
            "Start it with 'podium up', or name its folder with --data-dir.",
            Exit.UNREACHABLE,
        )
    return folder.resolve()
