"""`--set a.b=c`: keys of the job file from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from google.protobuf.message import Message

from podium.cli.exits import CliError, Exit
from podium.contract import parse_yaml, validate
from podium.core.errors import Violation
from podium.types.v1 import spec_pb2


def apply(
    spec: spec_pb2.JobSpec, violations: Sequence[Violation], settings: Sequence[str]
) -> tuple[spec_pb2.JobSpec, list[Violation]]:
    """A spec with the settings on top, and all that is wrong with the whole.

    `violations` are those of the file; what a setting replaces does not count
    any more. Each value is read as the file's YAML would be.

    Raises:
        CliError: a setting is not `KEY=VALUE`.
    """
    if not settings:
        return spec, list(violations)
    lines = {(v.field, v.description): v.line for v in violations}
    problems = _unreadable(spec, violations)
    for setting in settings:
        key, separator, value = setting.partition("=")
        key = key.strip()
        if not separator or not all(key.split(".")):
            raise CliError(
                f"--set {setting!r} is not KEY=VALUE",
                "For example --set training.steps=20",
                Exit.USAGE,
            )
        part, found = parse_yaml(_document(key, value), spec_pb2.JobSpec)
        wrong = _unreadable(part, found)
        problems = [problem for problem in problems if not _within(problem.field, key)]
        problems += [replace(v, line=0, description=f"{v.description} (--set)") for v in wrong]
        if not wrong:
            _copy(part, spec, key.split("."))
    broken = [replace(v, line=lines.get((v.field, v.description), 0)) for v in validate(spec)]
    return spec, problems + broken


def _unreadable(message: Message, violations: Sequence[Violation]) -> list[Violation]:
    """What parsing found and the message itself no longer shows: unknown keys, wrong types."""
    rules = {(v.field, v.description) for v in validate(message)}
    return [v for v in violations if (v.field, v.description) not in rules]


def _document(key: str, value: str) -> str:
    lines = [f"{'  ' * depth}{part}:" for depth, part in enumerate(key.split("."))]
    lines[-1] += f" {value}"
    return "\n".join(lines) + "\n"


def _within(field: str, key: str) -> bool:
    return field == key or field.startswith((f"{key}.", f"{key}["))


def _copy(source: Message, target: Message, path: Sequence[str]) -> None:
    for name in path[:-1]:
        field = source.DESCRIPTOR.fields_by_name[name]
        section = field.message_type
        if section is None or section.full_name.startswith("google.protobuf."):
            getattr(target, name).MergeFrom(getattr(source, name))
            return
        source, target = getattr(source, name), getattr(target, name)
    name = path[-1]
    target.ClearField(name)
    field = source.DESCRIPTOR.fields_by_name[name]
    if field.is_repeated:
        getattr(target, name).MergeFrom(getattr(source, name))
    elif field.message_type is not None:
        getattr(target, name).CopyFrom(getattr(source, name))
    elif not field.has_presence or source.HasField(name):
        setattr(target, name, getattr(source, name))
