"""Values of a program as the nodes that a job file with them would have: one reader reads both."""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from google.protobuf.message import Message

from podium.core.contract.nodes import MAP, MAX_DEPTH, MAX_NODES, OBJECT, SEQ, STR
from podium.core.contract.reader import TooMuchError
from podium.core.contract.writer import to_plain

# More than any field holds, and fewer than Python refuses to write in decimal.
_MOST_BITS = 1024
_PREFIX = STR.removesuffix("str")


class Fields(ABC):
    """A value that is its fields, by name."""

    @abstractmethod
    def fields(self) -> Mapping[str, Any]:
        """The fields that are set."""


def node_of(value: Any) -> yaml.Node:
    """The node that YAML with this value would have given.

    Dicts, lists, tuples, numbers (NumPy's too), text, None for what is absent, messages and
    `Fields` are taken at any depth; of anything else the reader says of which type it is.

    Raises:
        TooMuchError: it nests too deep (into itself, say), or holds too much.
    """
    return _Nodes().of(value, 0)


class _Nodes:
    def __init__(self) -> None:
        self._left = MAX_NODES

    def of(self, value: Any, depth: int) -> yaml.Node:
        self._left -= 1
        if self._left < 0:
            raise TooMuchError(f"got more than {MAX_NODES} values")
        if depth > MAX_DEPTH:
            raise TooMuchError(f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, Fields):
            value = value.fields()
        elif isinstance(value, Message):
            value = to_plain(value)
        if isinstance(value, Mapping):
            self._left -= len(value)
            pairs = [(_key(key), self.of(each, depth + 1)) for key, each in value.items()]
            return yaml.MappingNode(MAP, pairs)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
            return yaml.SequenceNode(SEQ, [self.of(each, depth + 1) for each in value])
        return _scalar(value)


def _key(key: Any) -> yaml.ScalarNode:
    return _scalar(key) if isinstance(key, str) else _object(key)


def _scalar(value: Any) -> yaml.ScalarNode:
    if value is None:
        return yaml.ScalarNode(f"{_PREFIX}null", "null")
    if isinstance(value, bool):
        return yaml.ScalarNode(f"{_PREFIX}bool", "true" if value else "false")
    if isinstance(value, str):
        # An enumeration's member is its value, whatever it is shown as.
        return yaml.ScalarNode(STR, str.__str__(value)) if _is_unicode(value) else _object(value)
    if isinstance(value, numbers.Integral):
        whole = int(value)
        if whole.bit_length() <= _MOST_BITS:
            return yaml.ScalarNode(f"{_PREFIX}int", str(whole))
    elif isinstance(value, numbers.Real):
        return yaml.ScalarNode(f"{_PREFIX}float", _float_text(float(value)))
    return _object(value)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    return repr(value).replace("inf", ".inf")


def _is_unicode(text: str) -> bool:
    """Whether it has no half of a surrogate pair, which no message holds."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _object(value: Any) -> yaml.ScalarNode:
    kind = type(value)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    detail = ""
    if isinstance(value, str):
        detail = " with half a surrogate pair"
    elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
        detail = f" of {value.bit_length()} bits"
    return yaml.ScalarNode(f"{OBJECT}{name}{detail}", "")
