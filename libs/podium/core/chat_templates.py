"""What a caller may hand to a model's chat template, such as `enable_thinking`."""

from __future__ import annotations

import hashlib
from typing import Any

from google.protobuf.struct_pb2 import Struct

from podium.core.errors import InvalidArgumentError, Violation
from podium.core.outside import plain_of

MAX_BYTES = 16 << 10
RESERVED = frozenset(
    {
        # What the renderer says itself.
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "conversations",
        "messages",
        "tokenize",
        "tools",
        # Transformers' own, which change what it returns.
        "max_length",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenizer_kwargs",
        "truncation",
        # Functions of the template's world.
        "raise_exception",
        "strftime_now",
    }
)
"""Names that are not a template's own."""


def digest_of(template: object) -> str:
    """Of a template's text, `sha256:…`; empty of a model without one, or with several."""
    if not isinstance(template, str) or not template:
        return ""
    return f"sha256:{hashlib.sha256(template.encode()).hexdigest()}"


def violations_of(arguments: Struct, field: str) -> list[Violation]:
    """What is wrong with a template's arguments that stand at `field`."""
    found = []
    if (size := arguments.ByteSize()) > MAX_BYTES:
        found.append(Violation(field, f"got {size} bytes; at most {MAX_BYTES} are allowed"))
    for name in sorted(arguments.fields):
        if name in RESERVED:
            found.append(
                Violation(f"{field}.{name}", "is not for the template; Podium says it itself")
            )
        elif not name.isidentifier():
            found.append(Violation(f"{field}.{name}", "is no name that a template could read"))
    return found


def template_arguments(arguments: Struct, field: str) -> dict[str, Any]:
    """Keyword arguments of a chat template; whole numbers as int.

    Raises:
        InvalidArgumentError: a name that is not the template's own, or too much of them.
    """
    if not arguments.fields:
        return {}
    if found := violations_of(arguments, field):
        raise InvalidArgumentError(violations=found)
    return {name: _whole(value) for name, value in plain_of(arguments).items()}


def _whole(value: Any) -> Any:
    """A Struct has no integers; templates compare and count with them."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _whole(inner) for name, inner in value.items()}
        case list():
            return [_whole(inner) for inner in value]
        case _:
            return value
