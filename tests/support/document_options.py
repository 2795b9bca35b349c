"""What click and the contract say of a `podium` command that a document prints; nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

import click
from podium.cli.default_group import DefaultGroup
from podium.cli.main import cli
from podium.core.contract import set_path
from podium.core.errors import InvalidArgumentError
from podium.types.v1 import spec_pb2

_END = re.compile(r"^(?:[|;&<>]|&&|\|\||>>|<<)$")
_SPECIFICATION = {"job submit", "train"}
"""Commands whose `--set` takes keys of a job file."""


def podium_words(line: str) -> list[str] | None:
    """The words after `podium` in a line of shell; None where it calls something else."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        words = list(lexer)
    except ValueError:
        return None
    while words and re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    if not words or words[0].rpartition("/bin/")[2] != "podium":
        return None
    end = next((n for n, word in enumerate(words) if _END.match(word)), len(words))
    return words[1:end]


def resolved(words: Sequence[str]) -> tuple[list[str], click.Command, list[str]]:
    """The names of a command, the command, and what it is given.

    Raises:
        click.UsageError: there is no such command.
    """
    names: list[str] = []
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        if isinstance(command, DefaultGroup):
            rest = command.named(rest)
        if rest[0].startswith("-"):
            break
        context = click.Context(command, info_name=command.name)
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None
        names.append(found.name or "")
        command = found
    return names, command, rest


def faults(words: Sequence[str], *, whole: bool = True) -> Iterator[str]:
    """What click would refuse, but for files that are not there: names, options, choices, counts.

    Args:
        whole: whether what is required must be there, as in a command to type, and not in one
            that is only named.
    """
    try:
        names, command, rest = resolved(words)
        if whole and isinstance(command, click.Group) and not rest:
            yield f"{' '.join(words)}: names no command"
            return
        context = click.Context(command, info_name=command.name)
        values, left, _ = command.make_parser(context).parse_args(list(rest))
    except click.UsageError as error:
        # `podium job submit -f` names an option, and leaves open which file.
        if whole or not isinstance(error, click.BadOptionUsage):
            yield f"{' '.join(words)}: {error.format_message()}"
        return
    if left:
        yield f"{' '.join(words)}: {' '.join(left)} is one argument too many"
    asks_for_help = values.get("help") or values.get("version")
    for parameter in command.get_params(context):
        value = values.get(parameter.name or "")
        # What was not given is a marker of click's own.
        given = (
            [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
        )
        if whole and parameter.required and not asks_for_help and not given:
            yield f"{' '.join(words)}: {parameter.human_readable_name} is missing"
        if isinstance(parameter.type, click.Choice):
            for each in given:
                if each not in parameter.type.choices:
                    yield f"{' '.join(words)}: {each} is none of {parameter.type.choices}"
    if " ".join(names) in _SPECIFICATION:
        for setting in values.get("settings") or []:
            yield from unknown_key(setting)


def unknown_key(setting: str) -> Iterator[str]:
    """What the contract says against the key of a `--set KEY=VALUE`."""
    key, _, value = setting.partition("=")
    # As in a job file, a version to fork may be an alias; capitals stand for what the reader has.
    value = "1" if key == "fork.version" else value.lower() if value.isupper() else value
    try:
        set_path(spec_pb2.JobSpec(), key, value)
    except InvalidArgumentError as error:
        yield from (f"--set {setting}: {each.description}" for each in error.violations)
