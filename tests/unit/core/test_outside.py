"""Whatever comes from outside can be sent on."""

from __future__ import annotations

import json

import pytest
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st
from podium.core.outside import (
    MOST_COUNTED,
    MOST_NESTED,
    clean,
    clean_json,
    count_of,
    plain_of,
    struct_of,
)
from podium.types.v1 import trajectory_pb2 as pb

ANY_TEXT = st.text(st.characters(exclude_categories=()) | st.sampled_from("\ud800\udfff\0"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain, é, 日本, \U0001f600\n", "plain, é, 日本, \U0001f600\n"),
        ("a\ud800b", "a\ufffdb"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("\ud83d\ude00", "\U0001f600"),
        ("a\0b", "a\ufffdb"),
        ("", ""),
    ],
)
def test_what_utf8_or_postgresql_lack_is_replaced(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (r'{"a": "\ud83d\ude00 \u00e9"}', r'{"a": "\ud83d\ude00 \u00e9"}'),
        (r'{"a": "\ud83d"}', r'{"a": "\ufffd"}'),
        (r'{"a": "\uDEAD\u0000"}', r'{"a": "\ufffd\ufffd"}'),
        (r'{"a": "\\ud83d \\\ud83d"}', r'{"a": "\\ud83d \\\ufffd"}'),
        ('{"a": "\ud83d', '{"a": "\ufffd'),
        (r"\ud83d", r"\ufffd"),
        (r"\u12", r"\u12"),
    ],
)
def test_json_decodes_to_clean_text(text: str, cleaned: str) -> None:
    assert clean_json(text) == cleaned


@given(ANY_TEXT)
def test_clean_text_can_be_sent_and_stays_as_it_is(text: str) -> None:
    cleaned = clean(text)
    assert pb.Message(content=cleaned).content == cleaned == clean(cleaned)
    assert "\0" not in cleaned
    if "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text):
        assert cleaned == text


@given(JSON, st.booleans())
def test_clean_json_is_the_same_but_for_its_texts(value: object, ascii_only: bool) -> None:
    text = clean_json(json.dumps(value, ensure_ascii=ascii_only))
    decoded = json.loads(text)
    json.dumps(decoded, ensure_ascii=False).encode()
    assert "\\u0000" not in json.dumps(decoded)


@given(st.dictionaries(ANY_TEXT, JSON, max_size=4))
def test_any_json_becomes_a_struct_that_can_be_read(value: dict[str, object]) -> None:
    struct = struct_of(value)
    assert Struct.FromString(struct.SerializeToString()) == struct
    assert json_format.MessageToDict(struct) == plain_of(struct)


def test_what_a_struct_lacks_is_text() -> None:
    deep: object = "x"
    for _ in range(MOST_NESTED + 5):
        deep = [deep]
    made = struct_of({"huge": 10**400, "nan": float("nan"), "inf": -float("inf"), "set": {1}})
    assert plain_of(made) == {
        "huge": "an integer of 1329 bits",
        "nan": "nan",
        "inf": "-inf",
        "set": "{1}",
    }
    group = pb.Group(trajectories=[pb.Trajectory(info=struct_of({"deep": deep}))])
    assert pb.Group.FromString(group.SerializeToString()) == group
    odd = Struct()
    odd.fields["nan"].number_value = float("nan")
    assert plain_of(odd) == {"nan": "nan"}


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (5, 5),
        ("12", 12),
        (1.9, 1),
        (None, 0),
        (-3, 0),
        ("many", 0),
        ([], 0),
        ({"a": 1}, 0),
        (float("nan"), 0),
        (float("inf"), MOST_COUNTED),
        (10**400, MOST_COUNTED),
        (2**63, MOST_COUNTED),
    ],
)
def test_counts_are_bounded(value: object, count: int) -> None:
    assert count_of(value) == count
