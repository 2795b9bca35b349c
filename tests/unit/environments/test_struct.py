"""JSON values become the Struct that their JSON text is, whichever way is taken."""

from __future__ import annotations

import json
from collections import OrderedDict
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st
from podium.core.outside import MOST_NESTED, clean_json
from podium.environments.serving.convert import struct

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Side(StrEnum):
    """A text that is more than a text."""

    LEFT = "left"


class Number(IntEnum):
    """A number that is more than a number."""

    ONE = 1


def by_text(values: Any) -> Struct:
    result = Struct()
    json_format.ParseDict(json.loads(clean_json(json.dumps(values, allow_nan=False))), result)
    return result


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_any_json_is_what_its_text_is(values: dict[str, Any]) -> None:
    assert struct(values) == by_text(values)


@pytest.mark.parametrize(
    "values",
    [
        {"side": Side.LEFT, "n": Number.ONE, "pair": (1, 2)},
        {1: "a", None: "b", False: "c", 0.5: "d"},
        {"half": "\ud800", "\udc00": 1, "pair": "\ud83d\ude00"},
        {"nul": "a\0b", "\0": {"\0": "\0"}},
        {"escape": "\\ud800 \\u0000"},
        {"empty": {}, "none": [], "deep": [[{}], [[]]]},
        {"ordered": OrderedDict(b=1, a=2)},
        {"great": 2**53 + 1, "exact": 2**53, "below": -(2**53) - 1},
    ],
)
def test_what_is_uncommon_is_what_its_text_is(values: dict[Any, Any]) -> None:
    assert struct(values) == by_text(values)


@pytest.mark.parametrize("depth", [MOST_NESTED - 1, MOST_NESTED, MOST_NESTED + 1, 90])
@pytest.mark.parametrize("listed", [False, True])
def test_what_is_nested_too_deep_is_text_at_the_depth_that_can_be_read(
    depth: int, listed: bool
) -> None:
    value: Any = "bottom"
    for _ in range(depth):
        value = [value] if listed else {"in": value}
    read = Struct.FromString(struct({"in": value}).SerializeToString())
    found, levels = read["in"], 1
    while not isinstance(found, str):
        found, levels = found[0] if listed else found["in"], levels + 1
    assert levels - 1 == min(depth, MOST_NESTED - 1)
    assert found == "bottom" if depth < MOST_NESTED else found.endswith("]" if listed else "}")


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), {1}, object(), b"x"])
def test_what_json_lacks_is_refused_wherever_it_stands(wrong: Any) -> None:
    for values in ({"x": wrong}, {"x": [wrong]}, {"x": {"y": wrong}}):
        with pytest.raises((TypeError, ValueError)):
            struct(values)


def test_a_number_beyond_a_doubles_is_text() -> None:
    assert struct({"n": 10**400})["n"] == "an integer of 1329 bits"
