"""What a client takes for a spec: a typed one, a message, a dict, or a job file's path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

from google.protobuf.message import Message

from podium.core.errors import InvalidArgumentError, Violation
from podium.core.specs.base import Spec
from podium.core.specs.generated import JobSpec
from podium.core.specs.reading import ReadSpec, read_file, read_values, refusal
from podium.types.v1 import spec_pb2

M = TypeVar("M", bound=Message)

JobSource = spec_pb2.JobSpec | JobSpec | Mapping[str, Any] | str | os.PathLike[str]
"""A job: its message, its typed spec, a dict, or the path of a job file."""


def read_job(source: JobSource, *, partial: bool = False) -> ReadSpec[spec_pb2.JobSpec]:
    """The job, and the alias of the version to fork; a message is taken as it is.

    With `partial` what is missing is no violation.

    Raises:
        OSError: the file cannot be read.
        InvalidArgumentError: everything that is wrong, with its line in a file.
    """
    if isinstance(source, spec_pb2.JobSpec):
        return ReadSpec(source, [], "")
    if isinstance(source, str | os.PathLike) and isinstance(name := os.fspath(source), str):
        found = read_file(name, spec_pb2.JobSpec, partial=partial)
    elif isinstance(source, Mapping | JobSpec):
        name = "JobSpec"
        found = read_values(source, spec_pb2.JobSpec, partial=partial)
    else:
        raise _unknown(source, "JobSpec")
    if found.violations:
        raise refusal(name, found.violations)
    return found


def message_of(source: M | Spec[M] | Mapping[str, Any], message_class: type[M]) -> M:
    """The message of a part of a job; a message is taken as it is.

    Raises:
        InvalidArgumentError: everything that is wrong.
    """
    name = message_class.DESCRIPTOR.name
    if isinstance(source, message_class):
        return source
    if not isinstance(source, Mapping) and getattr(source, "message_class", None) != message_class:
        raise _unknown(source, name)
    message, violations, _ = read_values(source, message_class)
    if violations:
        raise refusal(name, violations)
    return message


def _unknown(source: object, name: str) -> InvalidArgumentError:
    allowed = f"podium.{name}, its message and a dict"
    if name == "JobSpec":
        allowed = "podium.JobSpec, its message, a dict and the path of a job file"
    text = f"got a value of type {type(source).__name__}; allowed are {allowed}"
    return InvalidArgumentError(violations=[Violation("", text)], reason="INVALID_FIELDS")
