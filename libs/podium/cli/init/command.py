"""`podium init NAME`."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path

import click

from podium.cli.exits import CliError, Exit
from podium.cli.init.templates import DEFAULT, TEMPLATES, files

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_LETTERS = 63


@click.command(short_help="Make a folder with a task of your own.")
@click.argument("name")
@click.option(
    "--template",
    type=click.Choice(list(TEMPLATES)),
    default=DEFAULT,
    show_default=True,
    help="; ".join(f"{name}: {what}" for name, what in TEMPLATES.items()),
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Where to make it; it must be empty or absent. [default: NAME]",
)
def init(name: str, template: str, folder: Path | None) -> None:
    """Make a folder NAME with a small task that trains as it is, for you to change.

    It has task.py (the task), job.yaml (how it is trained) and README.md.
    """
    check_name(name)
    target = folder or Path(name)
    write(target, files(template, name))
    click.echo(str(target))
    click.echo(
        f"\nnext:  cd {target}\n"
        "       podium env check task.py    # plays it without a model\n"
        "       podium train task.py        # trains on it, with a curve and a report",
        err=True,
    )


def check_name(name: str) -> None:
    """Raises CliError when Python, or a job, could not bear the name."""
    if _NAME.fullmatch(name) and not keyword.iskeyword(name) and len(name) <= _MOST_LETTERS:
        if name not in sys.stdlib_module_names:
            return
        raise CliError(
            f"{name!r} is the name of a module of Python's own",
            f"Choose another, such as my_{name}.",
            Exit.USAGE,
        )
    better = re.sub(r"\W+", "_", Path(name).name, flags=re.ASCII).strip("_")[:_MOST_LETTERS]
    if better[:1].isdigit() or keyword.iskeyword(better):
        better = f"task_{better}"
    raise CliError(
        f"{name!r} is no name for a task: allowed are letters, digits and _ (not a digit first, at "
        f"most {_MOST_LETTERS}, no word of Python's)",
        f"For example: podium init {better or 'my_task'}"
        + ("; --folder says where" if "/" in name else ""),
        Exit.USAGE,
    )


def write(folder: Path, texts: dict[str, str]) -> None:
    """Writes the files into an empty folder, which is made if it is not there.

    Raises:
        CliError: it holds something, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = sorted(path.name for path in folder.iterdir())
        if held:
            raise CliError(
                f"the folder {folder} is not empty: it has {', '.join(held[:3])}"
                + (f" and {len(held) - 3} more" if len(held) > 3 else ""),
                "Choose another name, or another --folder.",
                Exit.CONFLICT,
            )
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except FileExistsError:
        raise CliError(f"{folder} is a file, not a folder", code=Exit.CONFLICT) from None
    except OSError as error:
        raise CliError(f"{folder} cannot be written: {error.strerror or error}") from None
