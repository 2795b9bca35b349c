"""`-o table|json|yaml|name`: data on stdout."""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from podium.cli.columns import columns, padded
from podium.cli.safe_text import one_line, visible

if TYPE_CHECKING:
    from google.protobuf.message import Message

FORMATS = ("table", "json", "yaml", "name")

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How to print the data.",
)

plain_output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(("table", "json", "yaml")),
    default="table",
    show_default=True,
    help="How to print what was found.",
)
"""For what has no names."""

M = TypeVar("M", bound="Message")


@dataclass(frozen=True)
class TableView(Generic[M]):
    """How one kind of message is shown: its name, and its table's columns."""

    name: Callable[[M], str]
    columns: Sequence[tuple[str, Callable[[M], str]]]


def emit_list(items: Sequence[M], view: TableView[M], output: str) -> None:
    """Prints messages; as JSON or YAML they are one list."""
    from podium.core.contract import to_plain

    match output:
        case "table":
            rows = [[one_line(cell(item)) for _, cell in view.columns] for item in items]
            table([title for title, _ in view.columns], rows)
        case "name":
            for item in items:
                click.echo(view.name(item))
        case _:
            data([to_plain(item) for item in items], output)


def emit_one(item: M, view: TableView[M], output: str) -> None:
    """Prints one message; as a table it is one row a field."""
    from podium.core.contract import to_plain

    match output:
        case "table":
            width = max(len(title) for title, _ in view.columns)
            for title, cell in view.columns:
                if text := visible(cell(item)):
                    click.echo(_field(title.lower(), text, width))
        case "name":
            click.echo(view.name(item))
        case _:
            data(to_plain(item), output)


def _field(title: str, text: str, width: int) -> str:
    """A field of a table of one item; lines that are too long go on below their beginning."""
    room = max(shutil.get_terminal_size((100, 24)).columns, width + 22)
    lines = textwrap.wrap(text, room - width - 2, break_long_words=False, break_on_hyphens=False)
    return f"{title:<{width}}  " + ("\n" + " " * (width + 2)).join(lines)


def data(value: Any, output: str) -> None:
    """Prints plain data as JSON or YAML."""
    if output == "yaml":
        import yaml

        # Messages' floats remember how they are written; YAML wants plain ones.
        value = json.loads(json.dumps(value))
        click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)
    else:
        try:
            text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
        except ValueError:
            text = json.dumps(_finite(value), indent=2, ensure_ascii=False)
        click.echo(text)


def _finite(value: Any) -> Any:
    """The value with null for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints aligned columns; numbers to the right."""
    body = [list(row) for row in rows]
    if not body:
        note("(none)")
        return
    widths = [max(map(columns, column)) for column in zip(titles, *body, strict=True)]
    right = [all(_numeric(row[i]) for row in body) for i in range(len(titles))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            padded(cell, width, right=to_right)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        ).rstrip()

    click.echo(click.style(line(titles), bold=True))
    for row in body:
        click.echo(line(row))


def note(text: str) -> None:
    """Chatter: on stderr, so that stdout holds data alone."""
    click.echo(text, err=True)


def plain_terminal() -> bool:
    """Whether stderr is no terminal that redraws a line."""
    import os

    return not sys.stderr.isatty() or bool(os.environ.get("NO_COLOR"))


def _numeric(cell: str) -> bool:
    if not cell or cell == "-":
        return True
    try:
        float(cell.rstrip("%"))
    except ValueError:
        return False
    return True
