"""`python -m podium.cli.demo`."""

from __future__ import annotations

import asyncio
import sys
import traceback
from pathlib import Path

import click

from podium.cli.demo.run import Demo, run
from podium.cli.exits import Exit, colour_choice, debugging, show
from podium.cli.output import note
from podium.cli.stack import ready_timeout_option
from podium.core.proxies import keep_direct


@click.command()
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--steps", type=click.IntRange(min=1), help="Optimizer steps. [default: the file's]")
@click.option(
    "--job",
    "job_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=Path("examples/email_search.yaml"),
    show_default=True,
    help="The job file.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of the job file."
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build/demo"),
    show_default=True,
    help="Where results, and the stack's data, go. The data of the last run is deleted.",
)
@click.option("--keep", is_flag=True, help="Leave the services running at the end, until Ctrl-C.")
@ready_timeout_option
def demo(
    seed: int,
    steps: int | None,
    job_file: Path,
    settings: tuple[str, ...],
    folder: Path,
    keep: bool,
    ready_timeout: float,
) -> int:
    """Train an agent, by default the email search, through all six services and show the gain."""
    chosen = [*settings, f"seed={seed}"] + ([f"training.steps={steps}"] if steps else [])
    return asyncio.run(run(Demo(job_file, tuple(chosen), folder, keep, ready_timeout)))


def main() -> None:
    """Runs the demo and exits with its code."""
    keep_direct()
    try:
        sys.exit(demo.main(prog_name="podium-demo", standalone_mode=False, color=colour_choice()))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        note("stopped")
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:
        if debugging():
            traceback.print_exc()
        sys.exit(show(error))


if __name__ == "__main__":
    main()
