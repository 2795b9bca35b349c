"""What all typed specs are: the fields of a message, held to its contract as they are set."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar, cast, dataclass_transform

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from podium.core.contract import to_plain, well_known
from podium.core.contract.rules import descriptor_of, field_names, is_map, is_repeated
from podium.core.contract.values import Fields
from podium.core.errors import Violation
from podium.core.specs.reading import ReadSpec, read_file, read_values, refusal

M = TypeVar("M", bound=Message)

_KINDS: dict[str, type[Spec[Any]]] = {}
"""The classes by the full name of their message."""


@dataclass_transform(kw_only_default=True)
class Spec(Fields, Generic[M]):
    """A part of a job. A field that is None is not set: the contract's default is taken.

    What is set is checked as it is set, by keyword or by assignment; what is missing when the
    whole becomes a message (`to_proto`) or is submitted. Choices are plain words as in a job file
    (`objective="clipped"`), and dicts are taken for sections.
    """

    message_class: ClassVar[type[Message]]
    """The message of the contract."""

    def __init__(self, **fields: Any) -> None:
        """Sets the fields.

        Raises:
            InvalidArgumentError: `violations` has a path, what came, what is allowed and the
                nearest name for each that is unknown or wrong.
        """
        self._set(fields)

    def __init_subclass__(cls) -> None:
        """Makes the class known, and its fields to completion and `help`."""
        super().__init_subclass__()
        descriptor = descriptor_of(cls.message_class)
        _KINDS[descriptor.full_name] = cls
        cls.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
                for name in field_names(descriptor)
            ]
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The spec of a mapping, as it would stand in a job file.

        Raises:
            InvalidArgumentError: as the constructor; it is no mapping.
        """
        if not isinstance(values, Mapping):
            raise refusal(cls.__name__, read_values(values, cls.message_class).violations)
        spec = cls()
        spec._set(values)
        return spec

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> Self:
        """The spec of a file: a job file for JobSpec, else what stands in its section.

        Raises:
            OSError: the file cannot be read.
            InvalidArgumentError: with every problem and its line. What is missing is none yet.
        """
        found = read_file(path, cls.message_class, partial=True)
        if found.violations:
            raise refusal(os.fspath(path), found.violations)
        return cls._of(found)

    @classmethod
    def from_proto(cls, message: M) -> Self:
        """The spec of a message.

        Raises:
            InvalidArgumentError: a value breaks the contract.
        """
        return cls.from_dict(to_plain(message))

    def to_proto(self) -> M:
        """The message, without the defaults, which the controller fills in.

        Raises:
            InvalidArgumentError: with everything that is missing or wrong in it and below.
        """
        message, violations, alias = read_values(self, self.message_class)
        if alias:
            text = f"{alias!r} is looked up when the job is created; a message takes a number"
            violations.append(Violation("fork.version", text))
        if violations:
            raise refusal(type(self).__name__, violations)
        return cast(M, message)

    def to_dict(self) -> dict[str, Any]:
        """What is set, as `from_dict` takes it: dicts, lists and plain values."""
        return {name: _plain(value) for name, value in self.fields().items()}

    def fields(self) -> Mapping[str, Any]:
        """What is set, by name, in the contract's order."""
        names = field_names(descriptor_of(self.message_class))
        found = ((name, self.__dict__.get(name)) for name in names)
        return {name: value for name, value in found if value is not None}

    def __setattr__(self, name: str, value: Any) -> None:
        self._set({name: value})

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_dict() == cast(Self, other).to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.fields().items())
        return f"{type(self).__name__}({shown})"

    def _set(self, given: Mapping[str, Any]) -> None:
        known = descriptor_of(self.message_class).fields_by_name
        violations = [v for name, value in given.items() for v in _foreign(known.get(name), value)]
        violations = violations or read_values(given, self.message_class, partial=True).violations
        if violations:
            raise refusal(type(self).__name__, violations)
        for name, value in given.items():
            self.__dict__[name] = _typed(known[name], value)

    @classmethod
    def _of(cls, found: ReadSpec[Any]) -> Self:
        spec = cls.from_dict(to_plain(found.message))
        if found.alias:
            # Only a fork has one.
            target: Any = getattr(spec, "fork", spec)
            target.version = found.alias
        return spec


def _foreign(field: FieldDescriptor | None, value: Any) -> Iterator[Violation]:
    """What is said of a section that is another's, which might have the same fields, or none."""
    if field is None or field.message_type is None or is_map(field):
        return
    whole = value if is_repeated(field) and isinstance(value, Sequence) else [value]
    for index, each in enumerate(whole):
        kind = each.message_class if isinstance(each, Spec) else type(each)
        if issubclass(kind, Message) and descriptor_of(kind) is not field.message_type:
            where = f"{field.name}[{index}]" if is_repeated(field) else str(field.name)
            name = type(each).__name__
            yield Violation(where, f"got {name}; allowed is {field.message_type.name}")


def _typed(field: FieldDescriptor, value: Any) -> Any:
    """The value as the class keeps it: sections typed, lists and dicts its own."""
    if value is None or is_map(field):
        return value if value is None else dict(value)
    if is_repeated(field):
        return [_section(field, each) for each in value]
    return _section(field, value)


def _section(field: FieldDescriptor, value: Any) -> Any:
    kind = field.message_type
    if kind is None or well_known.is_special(kind) or isinstance(value, Spec):
        return value
    return _KINDS[kind.full_name].from_dict(
        to_plain(value) if isinstance(value, Message) else value
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.to_dict()
    if isinstance(value, Message):
        return to_plain(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(each) for each in value]
    return value
