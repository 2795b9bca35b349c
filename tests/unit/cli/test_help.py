"""Help is complete, and costs nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from podium.cli.lazy import LazyGroup
from podium.cli.main import cli
from support.gathered import wrong_of

HEAVY = ("grpc", "torch", "google.protobuf", "pydantic", "yaml", "asyncio", "podium.kit.rpc")


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = [path for path, _ in commands(cli)]


def imported(*arguments: str) -> list[str]:
    script = (
        "import sys\n"
        "from podium.cli.main import run\n"
        f"code = run({list(arguments)!r})\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage: podium" in done.stdout
    found = eval(done.stderr.splitlines()[-1])
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("arguments", [("--help",), ("job", "--help"), ("-h",)])
def test_listing_commands_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert imported(*arguments) == []


def helpless(path: tuple[str, ...]) -> Iterator[str]:
    """What a command's help lacks."""
    context = click.Context(cli, info_name="podium")
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(context, name)
        assert found is not None
        command, context = found, click.Context(found, parent=context, info_name=name)
    if not command.get_help(context).startswith(f"Usage: podium {' '.join(path)}"):
        yield "does not begin with its usage"
    if not command.help:
        yield "does not say what it does"
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.help:
            yield f"{parameter.name} has no help"


def test_help_of_every_command() -> None:
    assert len(ALL) > 40
    wrong = wrong_of([(" ".join(path), path) for path in ALL], helpless)
    assert not wrong, wrong


def test_help_of_a_command_loads_no_grpc() -> None:
    assert not {"grpc", "torch"} & set(imported("job", "submit", "--help"))


def test_the_groups_tables_say_what_the_commands_say() -> None:
    groups = [cli, *(command for _, command in commands(cli) if isinstance(command, LazyGroup))]
    checked = 0
    for group in groups:
        for name, (_, words) in group.lazy.items():
            command = group.get_command(click.Context(group), name)
            assert command is not None
            assert command.name == name
            assert command.short_help == words, name
            checked += 1
    assert checked >= 20


def test_the_issue_s_commands_are_there() -> None:
    wanted = {
        "up down status doctor version chat",
        "job submit|job list|job get|job watch|job cancel|job pause|job resume|job delete",
        "job events|job steps|job logs|job trajectories|job evaluations|job report|job schema",
        "job init|checkpoint list|checkpoint get|checkpoint export|env list",
    }
    names = {" ".join(path) for path in ALL}
    for line in wanted:
        for name in line.split("|") if "|" in line else line.split():
            assert name in names
