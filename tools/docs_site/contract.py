"""A page for each file of the contract, with the comments of proto/: services, messages, enums."""

from __future__ import annotations

import importlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import (
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
    FileDescriptor,
    ServiceDescriptor,
)
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc
from podium.core.contract.describe import FieldRow, describe_fields
from podium.core.contract.rules import is_map, value_of
from sphinx.application import Sphinx

_HAZARD = re.compile(r"([\\*_<>\[\]{}#|~$])")
# Numbers of the fields of a FileDescriptorProto and what it holds, of which paths are made.
_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6
_FIELDS, _NESTED, _NESTED_ENUMS = 2, 3, 4
_VALUES = _METHODS = 2


def words(comment: str) -> str:
    """A comment as Markdown: what it quotes is code, and nothing else of it is markup."""
    parts = comment.split("`")
    if len(parts) % 2 == 0:
        return _HAZARD.sub(r"\\\1", comment)
    return "`".join(part if at % 2 else _HAZARD.sub(r"\\\1", part) for at, part in enumerate(parts))


def comments(proto: Path) -> dict[str, dict[str, str]]:
    """By file, the comment of each thing in it, by its full name."""
    files = sorted(str(path.relative_to(proto)) for path in proto.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "contract"
        include = Path(protoc.__file__).parent / "_proto"
        arguments = ["protoc", f"-I{proto}", f"-I{include}", "--include_source_info"]
        if protoc.main([*arguments, f"-o{output}", *files]):
            raise RuntimeError("protoc failed; its words stand above")
        found = descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes())
    return {file.name: dict(_commented(file)) for file in found.file}


def _commented(file: descriptor_pb2.FileDescriptorProto) -> Iterator[tuple[str, str]]:
    by_path = {
        tuple(location.path): location.leading_comments
        for location in file.source_code_info.location
    }
    for path, name in _paths(file):
        text = "\n".join(line.strip() for line in by_path.get(path, "").splitlines())
        yield name, text.strip()


def _paths(file: descriptor_pb2.FileDescriptorProto) -> Iterator[tuple[tuple[int, ...], str]]:
    for at, message in enumerate(file.message_type):
        yield from _message_paths(message, (_MESSAGES, at), file.package)
    for at, enum in enumerate(file.enum_type):
        yield from _part_paths(enum.value, enum.name, (_ENUMS, at), _VALUES, file.package)
    for at, service in enumerate(file.service):
        yield from _part_paths(
            service.method, service.name, (_SERVICES, at), _METHODS, file.package
        )


def _message_paths(
    message: descriptor_pb2.DescriptorProto, path: tuple[int, ...], scope: str
) -> Iterator[tuple[tuple[int, ...], str]]:
    yield from _part_paths(message.field, message.name, path, _FIELDS, scope)
    inside = f"{scope}.{message.name}"
    for at, nested in enumerate(message.nested_type):
        yield from _message_paths(nested, (*path, _NESTED, at), inside)
    for at, enum in enumerate(message.enum_type):
        yield from _part_paths(enum.value, enum.name, (*path, _NESTED_ENUMS, at), _VALUES, inside)


def _part_paths(
    parts: Iterable[Any], name: str, path: tuple[int, ...], kind: int, scope: str
) -> Iterator[tuple[tuple[int, ...], str]]:
    yield path, f"{scope}.{name}"
    for at, part in enumerate(parts):
        yield (*path, kind, at), f"{scope}.{name}.{part.name}"


def page(file: FileDescriptor, texts: Mapping[str, str]) -> str:
    """The page of one file."""
    blocks = [f"# {Path(file.name).stem}", f"Package `{file.package}`."]
    for service in file.services_by_name.values():
        blocks += _service(service, texts)
    if file.message_types_by_name:
        blocks.append("## Messages")
        for message in file.message_types_by_name.values():
            blocks += _message(message, texts)
    if file.enum_types_by_name:
        blocks.append("## Enums")
        for enum in file.enum_types_by_name.values():
            blocks += _enum(enum, texts)
    return "\n\n".join(blocks) + "\n"


def _service(service: ServiceDescriptor, texts: Mapping[str, str]) -> Iterator[str]:
    yield f"({service.full_name})=\n## {service.name}"
    yield words(texts[service.full_name])
    for method in service.methods:
        asked = _link(method.input_type)
        given = _link(method.output_type)
        asked = f"a stream of {asked}" if method.client_streaming else asked
        given = f"a stream of {given}" if method.server_streaming else given
        yield f"({method.full_name})=\n### {method.name}"
        yield f"Takes {asked}, gives {given}."
        yield words(texts[method.full_name])


def _message(message: Descriptor, texts: Mapping[str, str]) -> Iterator[str]:
    if message.GetOptions().map_entry:
        return
    yield f"({message.full_name})=\n### {message.name}"
    yield words(texts[message.full_name])
    rows = {row.path: row for row in describe_fields(GetMessageClass(message))}
    for field in message.fields:
        yield _definition(_head(field, rows[field.name]), texts[field.full_name])
    for nested in message.nested_types:
        yield from _message(nested, texts)
    for enum in message.enum_types:
        yield from _enum(enum, texts)


def _head(field: FieldDescriptor, row: FieldRow) -> str:
    kind = value_of(field) if is_map(field) else field
    named = kind.message_type or kind.enum_type
    type_ = row.type
    if named is not None and named.full_name.startswith("podium."):
        of = row.type.removesuffix("section").removesuffix(row.type.split()[-1])
        type_ = f"{of}{_link(named)}"
    facts = [type_, "required" if row.required else ""]
    facts.append(f"default `{row.default}`" if row.default else "")
    if field.enum_type is None and row.allowed:
        facts.append(f"`{row.allowed}`" if "matches" in row.allowed else words(row.allowed))
    return f"`{field.name}` = {field.number}: {', '.join(fact for fact in facts if fact)}"


def _enum(enum: EnumDescriptor, texts: Mapping[str, str]) -> Iterator[str]:
    yield f"({enum.full_name})=\n### {enum.name}"
    yield words(texts[enum.full_name])
    for value in enum.values:
        scope = enum.full_name.rpartition(".")[0]
        text = texts.get(f"{enum.full_name}.{value.name}") or texts.get(f"{scope}.{value.name}", "")
        yield _definition(f"`{value.name}` = {value.number}", text)


def _definition(head: str, text: str) -> str:
    body = words(text or "No comment.").replace("\n", "\n  ")
    return f"{head}\n: {body}"


def _link(named: Descriptor | EnumDescriptor) -> str:
    if not named.full_name.startswith("podium."):
        return f"`{named.full_name}`"
    return f"[{named.name}](#{named.full_name})"


def _write(app: Sphinx) -> None:
    proto = Path(app.srcdir) / "proto"
    folder = Path(app.srcdir) / "build" / "pages" / "contract"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = []
    for name, texts in comments(proto).items():
        module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        stem = name.removesuffix(".proto").replace("/", "-")
        (folder / f"{stem}.md").write_text(page(module.DESCRIPTOR, texts))
        names.append(stem)
    entries = "\n".join(sorted(names))
    head = "# The contract\n\nEach file of proto/, with its comments, limits and defaults.\n"
    (folder / "index.md").write_text(f"{head}\n```{{toctree}}\n\n{entries}\n```\n")


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx's entry."""
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True}
