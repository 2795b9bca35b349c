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

from podium.options.v1 import rules_pb2

_TYPES = {
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

_BOUND_NAMES = {
    "above": "exclusiveMinimum",
    "min": "minimum",
    "below": "exclusiveMaximum",
    "max": "maximum",
}


@dataclass(frozen=True)
class Key:
    """One key of a file; `path` has dots, and `[]` after a list."""

    path: str
    type: str
    required: bool
    default: str
    allowed: str
    help: str
    is_section: bool
    depth: int


def keys(message: Descriptor, prefix: str = "", depth: int = 0) -> Iterator[Key]:
    """Every key of a message, depth first, sections before their keys."""
    words = comments(message.file.name).get(message.name, {})
    for field in message.fields:
        rules = _rules(field)
        section = _is_section(field)
        path = f"{prefix}{field.name}{'[]' if field.is_repeated else ''}"
        yield Key(
            path=path,
            type=_type_name(field),
            required=rules.required or _zero_is_refused(field, rules),
            default=rules.default_value,
            allowed=_allowed(field, rules),
            help=words.get(field.name, ""),
            is_section=section,
            depth=depth,
        )
        if section and field.message_type is not None:
            yield from keys(field.message_type, f"{path}.", depth + 1)


def json_schema(message: Descriptor) -> dict[str, Any]:
    """The message as a JSON Schema (draft 2020-12)."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": message.name,
        **_object_schema(message),
    }


def template(message: Descriptor, values: Mapping[str, str]) -> str:
    """A YAML file that sets `values`, by path, and has every other key commented out.

    Explanations begin with `# `; a commented key with `#` alone, so that
    taking that character away puts the key to use.
    """
    lines = [
        "# A Podium job. Lines that begin with # and no space show keys at their default, or",
        "# with an example; take the # away to set one.",
        "",
    ]
    skipped = "\0"
    for key in keys(message):
        if key.path.startswith(skipped):
            continue
        name = key.path.removesuffix("[]").rsplit(".", 1)[-1]
        used = any(path == key.path or path.startswith(f"{key.path}.") for path in values)
        section = key.is_section and not key.path.endswith("[]")
        if key.is_section and not section:
            # Sections in a list do not flatten into lines; `job schema` has their keys.
            skipped = f"{key.path}."
        value = "" if section else values.get(key.path) or key.default or _example(key)
        if key.depth == 0 and len(lines) > 3:
            lines.append("")
        lines.extend(_block(key, f"{name}: {value}".rstrip(), used, values))
    return "\n".join(lines) + "\n"


def _block(key: Key, line: str, used: bool, values: Mapping[str, str]) -> Iterator[str]:
    """A key's explanation and its line, both commented where its section is."""
    parents = key.path.split(".")[:-1]
    unused = next(
        (
            depth
            for depth in range(len(parents))
            if not any(path.startswith(".".join(parents[: depth + 1]) + ".") for path in values)
        ),
        None,
    )
    indent = "  " * key.depth
    outside = indent if unused is None else f"{'  ' * unused}#{'  ' * (key.depth - unused)}"
    for words in textwrap.wrap(key.help, 96 - len(outside)):
        yield f"{outside}# {words}"
    if used:
        yield f"{indent}{line}"
    else:
        yield f"{outside}#{line}" if unused is None else f"{outside}{line}"


@functools.cache
def comments(proto_file: str) -> dict[str, dict[str, str]]:
    """Message name to field name to comment, of a .proto file; empty where there is no stub."""
    package, _, stem = proto_file.removesuffix(".proto").replace("/", ".").rpartition(".")
    stub = resources.files(package).joinpath(f"{stem}_pb2.pyi")
    if not stub.is_file():
        return {}
    classes = (node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ClassDef))
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


def _object_schema(message: Descriptor) -> dict[str, Any]:
    if message.full_name == "google.protobuf.Struct":
        return {"type": "object"}
    words = comments(message.file.name).get(message.name, {})
    properties = {}
    for field in message.fields:
        schema = _field_schema(field)
        if text := words.get(field.name):
            schema["description"] = text
        properties[field.name] = schema
    required = [field.name for field in message.fields if _rules(field).required]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        **({"required": required} if required else {}),
    }


def _field_schema(field: FieldDescriptor) -> dict[str, Any]:
    rules = _rules(field)
    schema: dict[str, Any]
    if field.message_type is not None:
        schema = _object_schema(field.message_type)
    else:
        schema = {"type": _TYPES[field.cpp_type]}
        if field.enum_type is not None:
            schema["enum"] = _enum_names(field)
        schema |= {_BOUND_NAMES[rule]: bound for rule, bound in _bounds(rules).items()}
        if rules.pattern:
            schema["pattern"] = f"^(?:{rules.pattern})$"
        if rules.default_value:
            schema["default"] = _parsed(field, rules.default_value)
    if field.is_repeated:
        return {"type": "array", "items": schema}
    return schema


def _rules(field: FieldDescriptor) -> rules_pb2.FieldRules:
    return field.GetOptions().Extensions[rules_pb2.rules]


def _is_section(field: FieldDescriptor) -> bool:
    return field.message_type is not None and not field.message_type.full_name.startswith(
        "google.protobuf."
    )


def _type_name(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        name = "section" if _is_section(field) else "mapping"
    else:
        name = "one of" if field.enum_type is not None else _TYPES[field.cpp_type]
    return f"list of {name}s" if field.is_repeated else name


def _allowed(field: FieldDescriptor, rules: rules_pb2.FieldRules) -> str:
    if field.enum_type is not None:
        return ", ".join(_enum_names(field))
    signs = {"above": ">", "min": ">=", "below": "<", "max": "<="}
    return ", ".join(f"{signs[rule]} {_short(bound)}" for rule, bound in _bounds(rules).items())


def _zero_is_refused(field: FieldDescriptor, rules: rules_pb2.FieldRules) -> bool:
    """A number that cannot be absent and may not be 0 must be given."""
    return not field.has_presence and not field.is_repeated and rules.min > 0


def _bounds(rules: rules_pb2.FieldRules) -> dict[str, float]:
    present = {field.name for field, _ in rules.ListFields()}
    return {rule: getattr(rules, rule) for rule in _BOUND_NAMES if rule in present}


def _enum_names(field: FieldDescriptor) -> list[str]:
    values = field.enum_type.values if field.enum_type is not None else ()
    return [value.name for value in values if value.number]


def _parsed(field: FieldDescriptor, text: str) -> Any:
    match _TYPES[field.cpp_type]:
        case "integer":
            return int(text)
        case "number":
            return float(text)
        case "boolean":
            return text == "true"
        case _:
            return text


def _short(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"


def _example(key: Key) -> str:
    if key.type == "list of sections":
        return "[{kind: SCORER_KIND_ENVIRONMENT}]" if key.path == "reward.scorers[]" else "[]"
    if key.type.startswith("list"):
        return "[]"
    return {"string": '""', "mapping": "{}", "number": "0.0", "integer": "0"}.get(key.type, "")


def _one_line(text: str) -> str:
    return " ".join(text.split())
