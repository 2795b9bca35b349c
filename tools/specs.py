"""Writes podium/core/specs/generated.py: the messages of a job's spec as typed Python.

Fields, types, bounds and defaults come from the descriptors, the words from the comments of the
.proto files, which the generated type stubs carry. `make proto` runs it.

    python tools/specs.py [--check]
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from podium.cli.contract_docs import comments
from podium.core.contract import well_known
from podium.core.contract.describe import describe_fields
from podium.core.contract.fork_alias import KEY
from podium.core.contract.rules import is_map, is_repeated, value_of
from podium.core.contract.text import enum_names, enum_prefix
from podium.types.v1 import spec_pb2

LIBS = Path(__file__).parents[1] / "libs"
TARGET = LIBS / "podium/core/specs/generated.py"

_WIDTH = 100
_HEAD = '''\
"""Typed specs of jobs. Written by tools/specs.py from proto/ (`make proto`): do not edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from podium.core.specs.base import Spec
'''
_SCALARS = {
    FieldDescriptor.CPPTYPE_INT32: "int",
    FieldDescriptor.CPPTYPE_INT64: "int",
    FieldDescriptor.CPPTYPE_UINT32: "int",
    FieldDescriptor.CPPTYPE_UINT64: "int",
    FieldDescriptor.CPPTYPE_DOUBLE: "float",
    FieldDescriptor.CPPTYPE_FLOAT: "float",
    FieldDescriptor.CPPTYPE_BOOL: "bool",
    FieldDescriptor.CPPTYPE_STRING: "str",
}


def source() -> str:
    """The whole module."""
    messages, enums = reached(spec_pb2.JobSpec.DESCRIPTOR)
    modules: dict[str, set[str]] = {}
    for message in messages:
        package, _, stem = (
            message.file.name.removesuffix(".proto").replace("/", ".").rpartition(".")
        )
        modules.setdefault(package, set()).add(f"{stem}_pb2")
    imports = [
        f"from {package} import {', '.join(sorted(names))}"
        for package, names in sorted(modules.items())
    ]
    names = sorted(message.name for message in messages)
    listed = "\n".join(["__all__ = [", *(f'    "{name}",' for name in names), "]", ""])
    blocks = [*map(_alias, enums), *map(_class, messages)]
    return "\n".join([_HEAD + "\n".join(imports), "", listed, *blocks])


def reached(root: Descriptor) -> tuple[list[Descriptor], list[EnumDescriptor]]:
    """The messages that a message is made of, and their enums, by name; itself first."""
    messages: dict[str, Descriptor] = {}
    enums: dict[str, EnumDescriptor] = {}
    waiting = [root]
    while waiting:
        message = waiting.pop()
        if message.name in messages:
            continue
        messages[message.name] = message
        for each in message.fields:
            field = value_of(each) if is_map(each) else each
            if field.enum_type is not None:
                enums[field.enum_type.name] = field.enum_type
            if field.message_type is not None and not well_known.is_special(field.message_type):
                waiting.append(field.message_type)
    rest = sorted((each for each in messages.values() if each is not root), key=lambda m: m.name)
    return [root, *rest], sorted(enums.values(), key=lambda enum: enum.name)


def _alias(enum: EnumDescriptor) -> str:
    """`Schedule = Literal["constant", …]` with what each means."""
    listed = [f'"{name}"' for name in enum_names(enum)]
    line = f"{enum.name} = Literal[{', '.join(listed)}]"
    if len(line) > _WIDTH:
        line = "\n".join([f"{enum.name} = Literal[", *(f"    {name}," for name in listed), "]"])
    words = comments(enum.file.name).get(f"_{enum.name}EnumTypeWrapper", {})
    prefix = enum_prefix(enum)
    text = [_class_words(enum.file.name, enum.name), ""]
    text += [
        f"- `{value.name.removeprefix(prefix).lower()}`: {words.get(value.name, '')}".rstrip(": ")
        for value in enum.values
        if value.number
    ]
    return f"{line}\n{_docstring(text, '')}\n"


def _class(message: Descriptor) -> str:
    module = message.file.name.rpartition("/")[2].removesuffix(".proto")
    words = {field.name: text for field, text in _field_texts(message)}
    # Twice: `help` and notebooks read the class's words, editors those of the field.
    summary = [_class_words(message.file.name, message.name), "", "Args:"]
    summary += [f"    {name}: {text}" for name, text in words.items()]
    lines = [
        f"\nclass {message.name}(Spec[{module}_pb2.{message.name}]):",
        _docstring(summary, "    "),
        "",
        f"    message_class = {module}_pb2.{message.name}",
        "",
    ]
    for field in message.fields:
        lines.append(f"    {field.name}: {_type(field)} | None = None")
        lines.append(_docstring([words[field.name]], "    "))
    return "\n".join(lines) + "\n"


def _field_texts(message: Descriptor) -> Iterator[tuple[FieldDescriptor, str]]:
    """What is said of each field: its comment, whether it must be set, and its bounds."""
    words = comments(message.file.name).get(message.name, {})
    rows = {row.path: row for row in describe_fields(GetMessageClass(message))}
    for field in message.fields:
        row = rows[field.name]
        text = words.get(field.name, "")
        if row.required:
            text += " Required."
        if row.allowed and field.enum_type is None:
            text += f" Allowed: {row.allowed}."
        yield field, text.strip()


def _type(field: FieldDescriptor) -> str:
    if is_map(field):
        return f"Mapping[str, {_one(value_of(field))}]"
    if is_repeated(field):
        return f"Sequence[{_one(field)}]"
    owner = field.containing_type
    if owner is not None and f"{owner.name}.{field.name}" == f"ForkSpec.{KEY.rpartition('.')[2]}":
        # Or an alias of the model's, such as `best`.
        return "int | str"
    return _one(field)


def _one(field: FieldDescriptor) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.name)
    if field.message_type is None:
        return _SCALARS[field.cpp_type]
    return (
        "Mapping[str, Any]"
        if well_known.is_special(field.message_type)
        else field.message_type.name
    )


def _docstring(paragraphs: list[str], indent: str) -> str:
    width = _WIDTH - len(indent) - 6
    lines = [
        line
        for paragraph in paragraphs
        for line in (
            textwrap.wrap(
                _plain_words(paragraph),
                width,
                subsequent_indent=_hanging(paragraph),
                break_long_words=False,
                break_on_hyphens=False,
            )
            or [""]
        )
    ]
    prefix = "r" if any("\\" in line for line in lines) else ""
    if len(lines) == 1:
        return f'{indent}{prefix}"""{lines[0]}"""'
    body = "\n".join(f"{indent}{line}".rstrip() for line in lines[1:])
    return f'{indent}{prefix}"""{lines[0]}\n{body}\n{indent}"""'


def _hanging(paragraph: str) -> str:
    return "        " if paragraph.startswith(" ") else "  " if paragraph.startswith("- ") else ""


def _plain_words(text: str) -> str:
    """Choices by the words of a job file: `clipped` for OBJECTIVE_CLIPPED."""
    return re.sub(r"`?\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b`?", _word, text)


def _word(found: re.Match[str]) -> str:
    return _choices().get(found[0].strip("`"), found[0])


@functools.cache
def _choices() -> dict[str, str]:
    _, enums = reached(spec_pb2.JobSpec.DESCRIPTOR)
    return {
        value.name: f"`{value.name.removeprefix(enum_prefix(enum)).lower()}`"
        for enum in enums
        for value in enum.values
    }


@functools.cache
def _stub(proto_file: str) -> ast.Module:
    return ast.parse((LIBS / f"{proto_file.removesuffix('.proto')}_pb2.pyi").read_text())


def _class_words(proto_file: str, name: str) -> str:
    return " ".join(" ".join(_class_comments(proto_file, name)).split())


def _class_comments(proto_file: str, name: str) -> Iterator[str]:
    for node in _stub(proto_file).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield ast.get_docstring(node) or ""


def main() -> int:
    """Writes the module, or with --check says whether it is what it would write."""
    if sys.argv[1:] != ["--check"]:
        TARGET.write_text(source(), encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != source():
        print(f"not what proto/ gives: {TARGET.relative_to(LIBS.parent)}; run: make proto")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
