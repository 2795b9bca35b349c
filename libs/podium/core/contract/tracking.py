"""A job's trackers name secrets: nothing that looks like a key may stand in a job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from google.protobuf.message import Message

from podium.core.errors import Violation
from podium.types.v1 import spec_pb2

# W&B's keys are 40 hexadecimal digits, others' begin with a mark of their maker.
_KEY = re.compile(
    r"[0-9a-f]{32,}|\b(?:[ps]k-lf-|sk-|opk[_-]|wandb_v\d_|dapi|hf_|gh[pousr]_)[\w-]{8,}", re.I
)


def tracking_violations(spec: spec_pb2.TrackingSpec, path: str) -> list[Violation]:
    """What is wrong with it beyond the rules of its fields; what was sent is not repeated."""
    why = "looks like a key; allowed is the name of a secret of the tracking service"
    return [
        Violation(f"{path}.{name}", f"got something that {why}")
        for name, text in _texts(spec)
        if _KEY.search(text)
    ]


def _texts(message: Message, path: str = "") -> Iterator[tuple[str, str]]:
    for field, value in message.ListFields():
        name = f"{path}{field.name}"
        if isinstance(value, Message):
            yield from _texts(value, f"{name}.")
        elif isinstance(value, str):
            yield name, value
        elif field.is_repeated:
            yield from ((f"{name}[{at}]", each) for at, each in enumerate(value))
