"""Messages as YAML, in the form in which people write job files."""

from __future__ import annotations

import base64
import math
import re
import struct
from typing import Any

import yaml
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from podium.core.contract import well_known
from podium.core.contract.nodes import RESOLVERS
from podium.core.contract.rules import FLOATS, descriptor_of, is_map, value_of
from podium.core.contract.text import int_or_none, short_name

_BREAKS = re.compile("[\n\r\x85\u2028\u2029]")
_ODD_BREAKS = re.compile("[\r\x85\u2028\u2029]")
_FLOAT_TAG = "tag:yaml.org,2002:float"


def to_yaml(message: Message) -> str:
    """The message as YAML: the contract's field order, short enum names, only what is set.

    `parse_yaml` reads it back to an equal message.
    """
    plain = to_plain(message)
    return yaml.dump(
        plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False
    )


def to_plain(message: Message) -> Any:
    """The message as dicts, lists and scalars, as `to_yaml` writes them."""
    if well_known.is_special(descriptor_of(message)):
        return well_known.plain(message)
    plain: dict[str, Any] = {}
    for field, values in sorted(message.ListFields(), key=lambda pair: pair[0].index):
        if is_map(field):
            inner = value_of(field)
            # Maps have no order of their own; a fixed one makes outputs comparable.
            plain[field.name] = {key: _value(inner, values[key]) for key in sorted(values)}
        elif field.is_repeated:
            plain[field.name] = [_value(field, value) for value in values]
        else:
            plain[field.name] = _value(field, values)
    return plain


class _Dumper(yaml.SafeDumper):
    """Quotes what either YAML 1.1 or our reader would not read as text."""

    def ignore_aliases(self, data: Any) -> bool:
        """Equal values are written out, never as anchors."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indents lists below their key."""
        super().increase_indent(flow, False)


class _Float(float):
    """A float whose text is kept."""

    text: str


def _represent_float(dumper: _Dumper, value: _Float) -> yaml.ScalarNode:
    return dumper.represent_scalar(_FLOAT_TAG, value.text)


def _represent_text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    # PyYAML folds line breaks of quoted keys into spaces unless it must escape them.
    style = '"' if _BREAKS.search(value) else None
    if "\n" in value.strip("\n") and not _ODD_BREAKS.search(value):
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(_Float, _represent_float)
_Dumper.add_representer(str, _represent_text)
for _tag, _regexp, _first in RESOLVERS:
    _Dumper.add_implicit_resolver(_tag, re.compile(rf"(?:{_regexp.pattern})\Z"), _first)


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return _numbers(to_plain(value))
    if field.enum_type is not None:
        return short_name(field.enum_type, value)
    if field.cpp_type in FLOATS:
        return _float(value, field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _numbers(plain: Any) -> Any:
    """Whole floats of a Struct as people write them."""
    if isinstance(plain, dict):
        return {key: _numbers(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_numbers(value) for value in plain]
    return _float(plain, False) if type(plain) is float else plain


def _float(value: float, single: bool) -> Any:
    whole = int_or_none(value)
    if whole is not None and abs(value) < 1e15 and math.copysign(1, value) * value >= 0:
        return whole if value or math.copysign(1, value) > 0 else _kept("-0.0")
    if math.isnan(value):
        return _kept(".nan")
    if math.isinf(value):
        return _kept(".inf" if value > 0 else "-.inf")
    return _kept(_shortest(value) if single else repr(value))


def _kept(text: str) -> _Float:
    number = _Float(float(text.replace(".inf", "inf").replace(".nan", "nan")))
    number.text = re.sub(r"e([-+])0*", lambda m: "e-" if m[1] == "-" else "e", text)
    return number


def _shortest(value: float) -> str:
    """The shortest decimal that is this single-precision float."""
    packed = struct.pack("<f", value)
    for digits in range(6, 10):
        text = f"{value:.{digits}g}"
        if struct.pack("<f", float(text)) == packed:
            return text
    return repr(value)
