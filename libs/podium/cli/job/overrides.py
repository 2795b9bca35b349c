"""`--set a.b=c`: keys of the job file from the command line."""

from __future__ import annotations

from collections.abc import Sequence

from podium.cli.exits import CliError, Exit
from podium.core.contract import set_path, validate
from podium.core.errors import InvalidArgumentError, Violation
from podium.types.v1 import spec_pb2


def apply(
    spec: spec_pb2.JobSpec, violations: Sequence[Violation], settings: Sequence[str]
) -> list[Violation]:
    """Sets the settings on a spec and says all that is wrong with the whole.

    `violations` are those of the file. One that a setting puts right does not
    count any more: a file may leave to --set what it does not say.

    Raises:
        CliError: a setting is not `KEY=VALUE`.
    """
    lines = {(v.field, v.description): v.line for v in violations}
    rules = {(v.field, v.description) for v in validate(spec)}
    # What the message itself cannot show: unknown keys, values of a wrong type.
    unreadable = [v for v in violations if (v.field, v.description) not in rules]
    for setting in settings:
        key, separator, value = setting.partition("=")
        key = key.strip()
        if not separator or not key:
            raise CliError(
                f"--set {setting!r} is not KEY=VALUE",
                "For example --set training.steps=20",
                Exit.USAGE,
            )
        unreadable = [v for v in unreadable if not _within(v.field, key)]
        try:
            set_path(spec, key, value.strip())
        except InvalidArgumentError as error:
            found = error.violations
            unreadable += [Violation(v.field, f"{v.description} (--set)") for v in found]
    broken = [
        Violation(v.field, v.description, lines.get((v.field, v.description), 0))
        for v in validate(spec)
        if not any(_within(v.field, bad.field) for bad in unreadable if bad.field)
    ]
    return sorted([*unreadable, *broken], key=lambda violation: violation.line)


def _within(field: str, key: str) -> bool:
    return field == key or field.startswith((f"{key}.", f"{key}["))
