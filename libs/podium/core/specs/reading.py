"""Files and values of a program read as specs, with everything that is wrong at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import yaml
from google.protobuf.message import Message

from podium.core.contract import fork_alias
from podium.core.contract.nodes import compose
from podium.core.contract.nul import nul_violations
from podium.core.contract.reader import TooMuchError, parse_node
from podium.core.contract.text import shown
from podium.core.contract.values import node_of
from podium.core.errors import InvalidArgumentError, Violation

M = TypeVar("M", bound=Message)

_FORK = "podium.types.v1.ForkSpec"
_JOB = "podium.types.v1.JobSpec"


class ReadSpec(NamedTuple, Generic[M]):
    """What was read, as far as it could be, and everything that is wrong with it."""

    message: M
    violations: list[Violation]
    alias: str
    """Of the version to fork (`best`), which the message then leaves open; empty for none."""


def read_values(value: Any, message_class: type[M], *, partial: bool = False) -> ReadSpec[M]:
    """Dicts, typed specs and messages, at any depth; with `partial` nothing is missed."""
    try:
        root = node_of(value)
    except TooMuchError as error:
        return ReadSpec(message_class(), [Violation("", str(error))], "")
    found = _read(root, message_class, partial)
    return found._replace(violations=[Violation(v.field, v.description) for v in found.violations])


def read_file(
    path: str | os.PathLike[str], message_class: type[M], *, partial: bool
) -> ReadSpec[M]:
    """A file of YAML.

    Raises:
        OSError: it cannot be read.
        InvalidArgumentError: it is no text, or `path` is the text itself.
    """
    name = os.fspath(path)
    if "\n" in name or "\0" in name:
        raise InvalidArgumentError(
            violations=[Violation("", f"got {shown(name)}; allowed is the path of a file")]
        )
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            violations=[Violation("", f"{name} is no UTF-8: {error.reason}")]
        ) from None
    root, refusals = compose(text)
    if refusals:
        return ReadSpec(message_class(), refusals, "")
    return _read(root, message_class, partial)


def refusal(name: str, violations: Sequence[Violation]) -> InvalidArgumentError:
    """The error that names them all; `name` is the file's, or the spec's."""
    if len(violations) == 1:
        text = (
            f"{name}:{_words(violations[0])}" if violations[0].line else f"{name}: {violations[0]}"
        )
    else:
        # In a file each with its place, where editors and terminals lead to.
        lines = [f"{name}:{_words(v)}" if v.line else str(v) for v in violations]
        text = "\n  ".join([f"{name} has {len(lines)} problems", *lines])
    return InvalidArgumentError(text, violations=violations, reason="INVALID_FIELDS")


def _words(violation: Violation) -> str:
    return ": ".join(filter(None, (str(violation.line), violation.field, violation.description)))


def _read(root: yaml.Node | None, message_class: type[M], partial: bool) -> ReadSpec[M]:
    message, violations = parse_node(root, message_class, partial=partial)
    alias, key = "", fork_alias.KEY
    kind = message_class.DESCRIPTOR.full_name
    if kind == _JOB:
        alias = fork_alias.alias_in(root)
    elif kind == _FORK:
        alias, key = fork_alias.alias_of(root), key.rpartition(".")[2]
    violations = fork_alias.without(violations, alias, key)
    return ReadSpec(message, [*violations, *nul_violations(message)], alias)
