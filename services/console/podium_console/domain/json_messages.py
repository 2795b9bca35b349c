"""Messages as protobuf's own JSON, and what is wrong with JSON that is no message.

The mapping is google.protobuf.json_format's. That stops at the first error and says where only now
and then, so what it refuses is looked through again for every field that is wrong.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from podium.core.contract import well_known
from podium.core.contract.rules import descriptor_of, is_map, value_of
from podium.core.contract.text import nearest, shown
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, Violation

M = TypeVar("M", bound=Message)

REASON = "MALFORMED_REQUEST"
_MOST_VIOLATIONS = 50
_MOST_LOOKED_AT = 20_000
"""Values of a message that is refused: one may have a million, and looking at each takes time."""
_NAME = 100
"""Characters of an unknown field's name that are compared with those of the message."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# What json_format raises where it meets what nobody foresaw, such as half of a character in a key.
_REFUSALS = (ArithmeticError, LookupError, RecursionError, SystemError, TypeError, ValueError)
_TIMES = {
    "google.protobuf.Timestamp": 'a time such as "2026-01-31T12:00:00Z"',
    "google.protobuf.Duration": 'a duration such as "90s"',
}
_KINDS = {
    FieldDescriptor.CPPTYPE_BOOL: "true or false",
    FieldDescriptor.CPPTYPE_FLOAT: "a number",
    FieldDescriptor.CPPTYPE_DOUBLE: "a number",
    FieldDescriptor.CPPTYPE_INT32: "a whole number of 32 bits",
    FieldDescriptor.CPPTYPE_UINT32: "a whole number of 32 bits, from 0",
    FieldDescriptor.CPPTYPE_INT64: "a whole number of 64 bits, quoted or not",
    FieldDescriptor.CPPTYPE_UINT64: "a whole number of 64 bits, from 0, quoted or not",
    FieldDescriptor.CPPTYPE_STRING: "text",
}


def read(body: bytes, message_class: type[M]) -> M:
    """The message that a JSON object says.

    Raises:
        InvalidArgumentError: it is no JSON, or no such message; with every field that is wrong.
    """
    found = _loaded(body)
    if not isinstance(found, dict):
        raise _wrong([Violation("", f"got {_got(found)}; allowed is a JSON object")])
    message = message_class()
    try:
        json_format.ParseDict(found, message)
    except (json_format.ParseError, *_REFUSALS) as error:
        looked = islice(_wrongs(found, descriptor_of(message), ""), _MOST_LOOKED_AT)
        wrong = list(islice((v for v in looked if v is not None), _MOST_VIOLATIONS))
        if not wrong:
            words = str(error).rpartition(" field: ")[2].partition("\n")[0]
            wrong = [Violation("", words[:300])]
        raise _wrong(wrong) from None
    return message


def write(message: Message) -> bytes:
    """A message as one line of JSON.

    Raises:
        FailedPreconditionError: it holds what JSON cannot say, such as an infinite number in a
            google.protobuf.Struct.
    """
    try:
        text = json_format.MessageToJson(message, indent=None, ensure_ascii=False)
    except (json_format.SerializeToJsonError, *_REFUSALS) as error:
        raise FailedPreconditionError(
            f"the answer cannot be said in JSON: {shown(str(error))}; gRPC can say it",
            reason="NO_JSON",
        ) from None
    return text.encode()


def _loaded(body: bytes) -> Any:
    try:
        text = body.decode()
        found = json.loads(
            text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite
        )
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise _wrong([Violation("", f"the body is no UTF-8 from byte {error.start}")]) from None
    except UnicodeEncodeError:
        words = "the body holds half of a surrogate pair, which is no character"
        raise _wrong([Violation("", words)]) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _wrong([Violation("", f"the body is no JSON: {error.msg} at {where}")]) from None
    except RecursionError:
        raise _wrong([Violation("", "the body is no JSON: it nests too deep")]) from None
    except ValueError as error:
        raise _wrong([Violation("", f"the body is no JSON: {str(error)[:200]}")]) from None
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {shown(name)} is there twice")
        found[name] = value
    return found


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{shown(text)[1:-1]} is too large for a number")
    return number


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON; fields of numbers take it quoted")


def _wrong(violations: list[Violation]) -> InvalidArgumentError:
    return InvalidArgumentError(violations=violations, reason=REASON)


def _wrongs(found: dict[str, Any], kind: Descriptor, path: str) -> Iterator[Violation | None]:
    """What is wrong with an object, and None for each value that is right."""
    names = [field.name for field in kind.fields]
    fields = {field.json_name: field for field in kind.fields} | dict(kind.fields_by_name)
    seen: set[str] = set()
    for key, value in found.items():
        field = fields.get(key)
        if field is None:
            hint = nearest(key[:_NAME], names) or f"; allowed are {', '.join(names) or 'none'}"
            yield Violation(f"{path}{shown(key)[1:-1]}", f"unknown field{hint}")
            continue
        where = path + field.name
        if field.name in seen:
            yield Violation(where, f"is there twice, as {field.name} and {field.json_name}")
        seen.add(field.name)
        if value is None:
            yield None
        elif is_map(field):
            if isinstance(value, dict):
                inner = value_of(field)
                for name, item in value.items():
                    yield from _value({name: item}, item, field, inner, f"{where}[{shown(name)}]")
            else:
                yield Violation(where, f"got {_got(value)}; allowed is an object")
        elif field.is_repeated:
            if isinstance(value, list):
                for index, item in enumerate(value):
                    yield from _value([item], item, field, field, f"{where}[{index}]")
            else:
                yield Violation(where, f"got {_got(value)}; allowed is a list")
        else:
            yield from _value(value, value, field, field, where)


def _value(
    whole: Any, value: Any, field: FieldDescriptor, inner: FieldDescriptor, path: str
) -> Iterator[Violation | None]:
    """One value of a field: `whole` is what a field that had it alone would hold."""
    kind = inner.message_type
    if kind is not None and kind.file.package != "google.protobuf":
        if isinstance(value, dict):
            yield from _wrongs(value, kind, f"{path}.")
        else:
            yield Violation(path, f"got {_got(value)}; allowed is an object")
        return
    assert field.containing_type is not None
    try:
        json_format.ParseDict({field.name: whole}, GetMessageClass(field.containing_type)())
        yield None
    except (json_format.ParseError, *_REFUSALS):
        yield Violation(path, f"got {_got(value)}; allowed {_allowed(inner)}")


def _allowed(field: FieldDescriptor) -> str:
    if field.enum_type is not None:
        return f"are {', '.join(_names(field.enum_type))}"
    if field.message_type is not None:
        return f"is {_TIMES.get(field.message_type.full_name) or _plain(field.message_type)}"
    if field.type == FieldDescriptor.TYPE_BYTES:
        return "is text in base64"
    return f"is {_KINDS[field.cpp_type]}"


def _plain(kind: Descriptor) -> str:
    name = well_known.type_name(kind) if well_known.is_special(kind) else kind.full_name
    return {"mapping": "an object of at most 100 levels", "list": "a list"}.get(name, name)


def _names(enum: EnumDescriptor) -> list[str]:
    return [value.name for value in enum.values if value.number]


def _got(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return shown(value)
