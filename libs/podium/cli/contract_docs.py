"""What the contract says about a message, for `job schema` and `job init`.

Types, ranges and defaults come from the descriptor, the words from the
comments of the .proto file, which the generated type stubs carry.
"""

from __future__ import annotations

import ast
import functools
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from podium.core.contract import FieldRow, describe_fields
from podium.core.contract.rules import descriptor_of, is_map, rules_of, value_of
from podium.core.contract.text import enum_names

_JSON_TYPES = {
    FieldDescriptor.CPPTYPE_INT32: "integer",
    FieldDescriptor.CPPTYPE_INT64: "integer",
    FieldDescriptor.CPPTYPE_UINT32: "integer",
    FieldDescriptor.CPPTYPE_UINT64: "integer",
    FieldDescriptor.CPPTYPE_DOUBLE: "number",
    FieldDescriptor.CPPTYPE_FLOAT: "number",
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_STRING: "string",
    FieldDescriptor.CPPTYPE_ENUM: "string",
}
_JSON_BOUNDS = {
    "above": "exclusiveMinimum",
    "min": "minimum",
    "below": "exclusiveMaximum",
    "max": "maximum",
}


# Where what the type alone suggests would be refused.
_EXAMPLES = {"reward.scorers": "[{kind: environment}]", "training.max_row_tokens": "4096"}


@dataclass(frozen=True)
class Key:
    """One key of a file."""

    row: FieldRow
    help: str

    @property
    def path(self) -> str:
        """With dots, `[]` for a list's items, and `{}` for a map's values."""
        return self.row.path

    @property
    def name(self) -> str:
        """Its own name, without its section's."""
        return self.path.rsplit(".", 1)[-1]

    @property
    def depth(self) -> int:
        """How many sections it stands in."""
        return self.path.count(".")

    @property
    def is_section(self) -> bool:
        """Whether it holds keys, and is no list."""
        return self.row.type == "section"


def keys(message_class: type[Message]) -> list[Key]:
    """Every key of a message, depth first, sections before their keys."""
    words = dict(_help(descriptor_of(message_class), ""))
    return [Key(row, words.get(row.path, "")) for row in describe_fields(message_class)]


def template(message_class: type[Message], values: Mapping[str, str]) -> str:
    """A YAML file that sets `values`, by path, and has every other key commented out.

    Explanations begin with `# `; a commented key with `#` alone, so that
    taking that character away puts the key to use.
    """
    lines = [
        "# A Podium job. Lines that begin with # and no space show keys at their default, or",
        "# with an example; take the # away to set one.",
        "",
    ]
    for key in keys(message_class):
        if "[]" in key.path or "{}" in key.path:
            # Sections in a list or by name do not flatten into lines; `job schema` has their keys.
            continue
        if key.depth == 0 and len(lines) > 3:
            lines.append("")
        lines.extend(_block(key, values))
    return "\n".join(lines) + "\n"


def json_schema(message_class: type[Message]) -> dict[str, Any]:
    """The message as a JSON Schema (draft 2020-12)."""
    descriptor = descriptor_of(message_class)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": descriptor.name,
        **_object_schema(descriptor),
    }


@functools.cache
def comments(proto_file: str) -> dict[str, dict[str, str]]:
    """Message name to field name to comment, of a .proto file; empty where there is no stub."""
    package, _, stem = proto_file.removesuffix(".proto").replace("/", ".").rpartition(".")
    stub = resources.files(package).joinpath(f"{stem}_pb2.pyi")
    if not stub.is_file():
        return {}
    classes = (
        node
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    return {node.name: dict(_documented(node)) for node in classes}


def _documented(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Fields are annotated names followed by a docstring, or documented properties."""
    for index, child in enumerate(node.body):
        if isinstance(child, ast.FunctionDef):
            if text := ast.get_docstring(child):
                yield child.name, _one_line(text)
        elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            following = node.body[index + 1] if index + 1 < len(node.body) else None
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                yield child.target.id, _one_line(str(following.value.value))


def _help(message: Descriptor, prefix: str) -> Iterator[tuple[str, str]]:
    words = comments(message.file.name).get(message.name, {})
    for field in message.fields:
        yield f"{prefix}{field.name}", words.get(field.name, "")
        inner = value_of(field).message_type if is_map(field) else field.message_type
        if inner is not None and inner.file.package.startswith("podium."):
            of = "{}" if is_map(field) else "[]" if field.is_repeated else ""
            yield from _help(inner, f"{prefix}{field.name}{of}.")


def _block(key: Key, values: Mapping[str, str]) -> Iterator[str]:
    """A key's explanation and its line, both commented out where its section is not used."""
    sections = key.path.split(".")[:-1]
    unused = next(
        (
            depth
            for depth in range(len(sections))
            if not _uses(values, ".".join(sections[: depth + 1]))
        ),
        None,
    )
    indent = "  " * key.depth
    outside = indent if unused is None else f"{'  ' * unused}#{'  ' * (key.depth - unused)}"
    for words in textwrap.wrap(key.help, 96 - len(outside)):
        yield f"{outside}# {words}"
    value = "" if key.is_section else values.get(key.path) or key.row.default or _example(key)
    line = f"{key.name}: {value}".rstrip()
    if unused is None and not _uses(values, key.path):
        line = f"#{line}"
    yield f"{outside}{line}"


def _uses(values: Mapping[str, str], path: str) -> bool:
    return any(used == path or used.startswith(f"{path}.") for used in values)


def _example(key: Key) -> str:
    if key.path in _EXAMPLES:
        return _EXAMPLES[key.path]
    if key.row.type.startswith("list"):
        return "[]"
    if key.row.type == "choice":
        return key.row.allowed.split(", ")[0]
    plain = {"text": '""', "whole number": "1", "number": "1", "true or false": "false"}
    return plain.get(key.row.type, "{}")


def _object_schema(message: Descriptor) -> dict[str, Any]:
    if message.full_name == "google.protobuf.Struct":
        return {"type": "object"}
    words = comments(message.file.name).get(message.name, {})
    properties = {
        field.name: {**_field_schema(field), "description": words.get(field.name, "")}
        for field in message.fields
    }
    required = [
        field.name for field in message.fields if (rules := rules_of(field)) and rules.required
    ]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        **({"required": required} if required else {}),
    }


def _field_schema(field: FieldDescriptor) -> dict[str, Any]:
    schema: dict[str, Any]
    if is_map(field):
        return {"type": "object", "additionalProperties": _field_schema(value_of(field))}
    if field.message_type is not None:
        schema = _object_schema(field.message_type)
    else:
        schema = {"type": _JSON_TYPES[field.cpp_type]}
        if field.enum_type is not None:
            schema["enum"] = list(enum_names(field.enum_type))
        rules = rules_of(field)
        if rules is not None:
            present = {option.name for option, _ in rules.ListFields()}
            schema |= {
                _JSON_BOUNDS[bound]: getattr(rules, bound)
                for bound in _JSON_BOUNDS
                if bound in present
            }
            if rules.pattern:
                schema["pattern"] = f"^(?:{rules.pattern})$"
    return {"type": "array", "items": schema} if field.is_repeated else schema


def _one_line(text: str) -> str:
    return " ".join(text.split())
