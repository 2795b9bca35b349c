"""Access reviews as newer versions of kubectl post them: in Kubernetes' protobuf envelope."""

from __future__ import annotations

from typing import Any

_MAGIC = b"k8s\x00"
# Numbers of fields in runtime.Unknown, and of the review, its spec and its attributes.
_RAW = 2
_SPEC = 2
_ATTRIBUTES = 1
_NAMES = {1: "namespace", 2: "verb", 3: "group", 4: "version", 5: "resource"}


def access_review(body: bytes) -> dict[str, Any]:
    """A SelfSubjectAccessReview as its JSON would be."""
    assert body.startswith(_MAGIC), body[:16]
    attributes = body.removeprefix(_MAGIC)
    for number in (_RAW, _SPEC, _ATTRIBUTES):
        attributes = _fields(attributes)[number]
    found = {
        _NAMES[number]: value.decode()
        for number, value in _fields(attributes).items()
        if number in _NAMES and value
    }
    return {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": {"resourceAttributes": found},
    }


def _fields(message: bytes) -> dict[int, bytes]:
    """Of a message whose fields are all strings and messages."""
    fields: dict[int, bytes] = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        assert key & 7 == 2, f"field {key >> 3} has wire type {key & 7}"
        length, at = _varint(message, at)
        fields[key >> 3] = message[at : at + length]
        at += length
    return fields


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
