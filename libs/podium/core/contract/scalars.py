"""Scalars: what a YAML or command-line scalar means, and whether a field takes it."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from podium.core.contract.rules import FLOATS, INTEGERS
from podium.core.contract.text import (
    enum_names,
    enum_number,
    int_or_none,
    nearest,
    number_text,
    shown,
)

Scalar = None | bool | int | float | str

NULL = re.compile(r"~|null|Null|NULL|")
BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
"""The scalars of YAML 1.2's core schema, in which `1e-5` is a number and `no` a word."""

_BOUNDS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
# More digits than any field holds; int() itself refuses 4300.
_MOST_DIGITS = 400


class WrongValueError(ValueError):
    """The text says what came and what is allowed."""


def read_scalar(text: str) -> Scalar:
    """What unquoted text means.

    Raises:
        WrongValueError: a number with absurdly many digits.
    """
    if NULL.fullmatch(text):
        return None
    if BOOL.fullmatch(text):
        return text.lower() == "true"
    if INT.fullmatch(text):
        if len(text) > _MOST_DIGITS:
            raise WrongValueError(f"got a number of {len(text)} digits; no field holds it")
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if FLOAT.fullmatch(text):
        return float(re.sub(r"\.(inf|nan)", r"\1", text.lower()))
    return text


def convert(field: FieldDescriptor, value: Scalar) -> Any:
    """The field's value for a scalar, its type and range checked; never for a message field.

    Raises:
        WrongValueError: the field does not take it.
    """
    if field.enum_type is not None:
        return _enum(field, value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if not isinstance(value, bool):
            raise WrongValueError(f"got {kind_of(value)}; allowed are true and false")
        return value
    if field.cpp_type in INTEGERS:
        return _integer(field, value)
    if field.cpp_type in FLOATS:
        return _float(field, value)
    if not isinstance(value, str):
        hint = "" if value is None else f"; in quotes it would be: {shown(_as_text(value))}"
        raise WrongValueError(f"got {kind_of(value)}; allowed is text{hint}")
    if field.type == FieldDescriptor.TYPE_BYTES:
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            raise WrongValueError(f"got {shown(value)}; allowed is base64") from None
    return value


def from_text(field: FieldDescriptor, text: str) -> Any:
    """The field's value for text: text fields take it as it is.

    Raises:
        WrongValueError: the field does not take it.
    """
    is_text = field.cpp_type == FieldDescriptor.CPPTYPE_STRING or field.enum_type is not None
    return convert(field, text if is_text else read_scalar(text))


def kind_of(value: Any) -> str:
    """What came, in words: `the number 3`, `"yes"`, `nothing`."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {_cut_number(value)}"
    return shown(value)


def type_name(field: FieldDescriptor) -> str:
    """The type in the words of a job file."""
    if field.enum_type is not None:
        return "choice"
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return "true or false"
    if field.cpp_type in INTEGERS:
        return "whole number"
    if field.cpp_type in FLOATS:
        return "number"
    return "base64" if field.type == FieldDescriptor.TYPE_BYTES else "text"


def _enum(field: FieldDescriptor, value: Scalar) -> int:
    assert field.enum_type is not None
    allowed = enum_names(field.enum_type)
    if isinstance(value, str):
        number = enum_number(field.enum_type, value)
        if number is not None:
            return number
        near = nearest(value.lower(), allowed)
    else:
        near = ""
    raise WrongValueError(f"got {kind_of(value)}; allowed are {', '.join(allowed)}{near}")


def _integer(field: FieldDescriptor, value: Scalar) -> int:
    low, high = _BOUNDS[field.cpp_type]
    whole = None if isinstance(value, bool | str) or value is None else int_or_none(value)
    if whole is None:
        raise WrongValueError(f"got {kind_of(value)}; allowed are whole numbers")
    if not low <= whole <= high:
        raise WrongValueError(
            f"got {kind_of(value)}; allowed are whole numbers from {low} to {high}"
        )
    return whole


def _float(field: FieldDescriptor, value: Scalar) -> float:
    if isinstance(value, bool | str) or value is None:
        raise WrongValueError(f"got {kind_of(value)}; allowed are numbers")
    try:
        number = float(value)
    except OverflowError:
        raise WrongValueError(f"got {kind_of(value)}; no number field holds it") from None
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
        try:
            struct.pack("<f", number)
        except OverflowError:
            raise WrongValueError(
                f"got {kind_of(value)}; allowed are numbers of single precision, up to 3.4e38"
            ) from None
    return number


def _as_text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return number_text(value) if isinstance(value, int | float) else str(value)


def _cut_number(value: float) -> str:
    text = str(value) if isinstance(value, int) else number_text(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
