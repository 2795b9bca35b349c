"""Job files: YAML to a message, with everything that is wrong at once."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import yaml
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from podium.core.contract import well_known
from podium.core.contract.nodes import (
    MAP,
    MAX_DEPTH,
    MAX_NODES,
    OBJECT,
    PLAIN,
    SEQ,
    STR,
    compose,
    line_of,
)
from podium.core.contract.rules import descriptor_of, field_names, is_map, real_oneof, value_of
from podium.core.contract.scalars import Scalar, WrongValueError, convert, kind_of, read_scalar
from podium.core.contract.text import nearest, shown
from podium.core.contract.validate import validate
from podium.core.errors import Violation

M = TypeVar("M", bound=Message)


class ParsedYaml(NamedTuple, Generic[M]):
    """What a file says, as far as it could be read, and everything that is wrong with it."""

    message: M
    violations: list[Violation]


class TooMuchError(Exception):
    """The limits of the file are reached."""


def parse_yaml(text: str, message_class: type[M]) -> ParsedYaml[M]:
    """Reads one YAML document as a message and holds it to its contract.

    Keys are the contract's field names. Enum values may be short and lower
    case (`std`) or in full. A key without a value counts as absent. Every
    unknown key, wrong type and out-of-range value is a violation with its
    line, its path, and the nearest valid name; no exception is raised for any
    text.
    """
    root, refusals = compose(text)
    return ParsedYaml(message_class(), refusals) if refusals else parse_node(root, message_class)


def parse_node(
    root: yaml.Node | None, message_class: type[M], *, partial: bool = False
) -> ParsedYaml[M]:
    """Reads the root of a document, None for an empty one, as `parse_yaml` does.

    With `partial` only what is there is held to the contract, not what is missing.
    """
    message = message_class()
    reader = NodeReader()
    reader.lines[""] = line_of(root) if root is not None else 1
    if root is not None:
        try:
            reader.message(root, message, "")
        except TooMuchError as error:
            return ParsedYaml(message_class(), [Violation("", str(error))])
    reader.check(message, partial=partial)
    reader.violations.sort(key=lambda violation: violation.line)
    return ParsedYaml(message, reader.violations)


class NodeReader:
    """Reads nodes into messages and keeps where everything stood."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.lines: dict[str, int] = {}
        self._bad: set[str] = set()
        self._absent: set[str] = set()
        self._nodes = 0
        self._depth = 0

    def check(self, message: Message, *, partial: bool = False) -> None:
        """Adds the contract's violations, but where a value could not even be read.

        With `partial` only those of fields that are written down.
        """
        for violation in validate(message):
            if partial and (violation.field not in self.lines or violation.field in self._absent):
                continue
            if not any(_within(violation.field, bad) for bad in self._bad):
                line = self._line(violation.field)
                self.violations.append(Violation(violation.field, violation.description, line))

    def message(self, node: yaml.Node, message: Message, path: str) -> None:
        """Reads a mapping into a message."""
        self._enter()
        try:
            if well_known.is_special(descriptor_of(message)):
                self._special(node, message, path)
            elif self._is_mapping(node, path, f"the fields {', '.join(_names(message))}"):
                self._fields(node, message, path)
        finally:
            self._depth -= 1

    def field(self, node: yaml.Node, message: Message, field: FieldDescriptor, path: str) -> None:
        """Reads a value into a field."""
        if _is_null(node) and not well_known.takes_null(field):
            self._absent.add(path)
            return
        if is_map(field):
            self._map(node, message, field, path)
        elif field.is_repeated:
            self._list(node, message, field, path)
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            self.message(node, inner, path)
        else:
            try:
                setattr(message, field.name, self.scalar(node, field))
            except WrongValueError as error:
                self._report(node, path, str(error))

    def scalar(self, node: yaml.Node, field: FieldDescriptor) -> Any:
        """The field's value for a node.

        Raises:
            WrongValueError: the field does not take it.
        """
        self._count()
        if isinstance(node, yaml.ScalarNode):
            return convert(field, scalar_of(node))
        try:
            # Refused by every field, with a text that says what is allowed.
            return convert(field, None)
        except WrongValueError as error:
            text = str(error).replace("got nothing", f"got {_what(node)}")
            raise WrongValueError(text) from None

    def _fields(self, node: yaml.Node, message: Message, path: str) -> None:
        fields = descriptor_of(message).fields_by_name
        seen: dict[str, int] = {}
        chosen: dict[str, str] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, path)
            if key is None or self._duplicate(key_node, key, seen, path):
                continue
            where = f"{path}.{key}" if path else key
            field = fields.get(key)
            if field is None:
                near = nearest(key, _names(message))
                hint = near or f"; allowed are {', '.join(_names(message))}"
                self._report(key_node, where, f"unknown field{hint}")
                continue
            oneof = real_oneof(field)
            if oneof and not _is_null(value_node):
                if oneof in chosen:
                    self._report(
                        key_node, where, f"only one of {oneof} may be set; {chosen[oneof]} is"
                    )
                    continue
                chosen[oneof] = key
            self.lines[where] = line_of(key_node)
            self.field(value_node, message, field, where)

    def _map(self, node: yaml.Node, message: Message, field: FieldDescriptor, path: str) -> None:
        if not self._is_mapping(node, path, "names and values"):
            return
        key_field = field.message_type.fields_by_name["key"] if field.message_type else field
        value_field = value_of(field)
        values = getattr(message, field.name)
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            text = self._key(key_node, path)
            if text is None or self._duplicate(key_node, text, seen, path):
                continue
            where = f"{path}[{shown(text)}]"
            self.lines[where] = line_of(value_node)
            try:
                key = convert(
                    key_field,
                    text if key_field.type == FieldDescriptor.TYPE_STRING else read_scalar(text),
                )
                if value_field.message_type is not None:
                    self.message(value_node, values[key], where)
                else:
                    values[key] = self.scalar(value_node, value_field)
            except WrongValueError as error:
                self._report(value_node, where, str(error))

    def _list(self, node: yaml.Node, message: Message, field: FieldDescriptor, path: str) -> None:
        if not isinstance(node, yaml.SequenceNode) or node.tag != SEQ:
            self._report(node, path, f"got {_what(node)}; allowed is a list")
            return
        values = getattr(message, field.name)
        for index, item in enumerate(node.value):
            where = f"{path}[{index}]"
            self.lines[where] = line_of(item)
            if field.message_type is not None:
                self.message(item, values.add(), where)
                continue
            try:
                values.append(self.scalar(item, field))
            except WrongValueError as error:
                self._report(item, where, str(error))

    def _special(self, node: yaml.Node, message: Message, path: str) -> None:
        try:
            well_known.fill(message, self._plain(node))
        except WrongValueError as error:
            self._report(node, path, str(error))

    def _plain(self, node: yaml.Node) -> Any:
        """Nodes as JSON values.

        Raises:
            WrongValueError: a duplicate or non-text key, or a foreign tag.
        """
        self._enter()
        try:
            if isinstance(node, yaml.ScalarNode):
                return scalar_of(node)
            if isinstance(node, yaml.SequenceNode) and node.tag == SEQ:
                return [self._plain(item) for item in node.value]
            if not isinstance(node, yaml.MappingNode) or node.tag != MAP:
                raise WrongValueError(f"got {_what(node)}; allowed are plain values")
            plain: dict[str, Any] = {}
            for key_node, value_node in node.value:
                plain_key = isinstance(key_node, yaml.ScalarNode) and key_node.tag in PLAIN
                key = scalar_of(key_node) if plain_key else None
                if not isinstance(key, str):
                    where = f" on line {line_of(key_node)}" if key_node.start_mark else ""
                    raise WrongValueError(f"got {_what(key_node)} as a key{where}; allowed is text")
                if key in plain:
                    raise WrongValueError(
                        f"the key {shown(key)} is there twice, on line {line_of(key_node)} again"
                    )
                plain[key] = self._plain(value_node)
            return plain
        finally:
            self._depth -= 1

    def _is_mapping(self, node: yaml.Node, path: str, of: str) -> bool:
        if isinstance(node, yaml.MappingNode) and node.tag == MAP:
            return True
        self._report(node, path, f"got {_what(node)}; allowed is a mapping of {of}")
        return False

    def _key(self, node: yaml.Node, path: str) -> str | None:
        self._count()
        if isinstance(node, yaml.ScalarNode) and node.tag in PLAIN:
            return str(node.value)
        self._report(node, path, f"got {_what(node)} as a key; allowed is a name")
        return None

    def _duplicate(self, node: yaml.Node, key: str, seen: dict[str, int], path: str) -> bool:
        if key not in seen:
            seen[key] = line_of(node)
            return False
        where = f"{path}.{key}" if path else key
        self._report(node, where, f"is there twice; it was on line {seen[key]} first")
        return True

    def _report(self, node: yaml.Node, path: str, text: str) -> None:
        self._bad.add(path)
        self.violations.append(Violation(path, text, line_of(node)))

    def _line(self, path: str) -> int:
        """The line of a path, or of the nearest thing around it that is written down."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 1)

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise TooMuchError(f"aliases make it more than {MAX_NODES} values")

    def _enter(self) -> None:
        self._count()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooMuchError(f"aliases make it nest deeper than {MAX_DEPTH} levels")


def scalar_of(node: yaml.ScalarNode) -> Scalar:
    """What the node says.

    Raises:
        WrongValueError: a tag of its own, such as `!!python/name`.
    """
    if node.tag == STR:
        return str(node.value)
    if node.tag not in PLAIN:
        raise WrongValueError(f"got {_foreign(node)}; allowed are plain values")
    return read_scalar(node.value)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")


def _within(path: str, bad: str) -> bool:
    return not bad or path == bad or path.startswith((f"{bad}.", f"{bad}["))


def _names(message: Message) -> list[str]:
    return list(field_names(descriptor_of(message)))


def _what(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        try:
            return kind_of(scalar_of(node))
        except WrongValueError:
            return _foreign(node)
    if node.tag not in (MAP, SEQ):
        return _foreign(node)
    return "a mapping" if isinstance(node, yaml.MappingNode) else "a list"


def _foreign(node: yaml.Node) -> str:
    kind = str(node.tag).removeprefix(OBJECT)
    return f"a value of type {kind}" if kind != node.tag else f"the tag {shown(node.tag)}"
