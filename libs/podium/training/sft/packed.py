"""Conversations in memory as bytes: as messages they take five times as much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.training.sft.rows import Conversation


class PackedConversations(Sequence[Conversation]):
    """Rows of a file, in its order; each is made anew whenever it is asked for."""

    def __init__(self) -> None:
        """None is held yet."""
        self._held: list[tuple[str, bytes]] = []

    def add(self, row: Conversation) -> None:
        """Holds one more."""
        body = inference_pb.RenderDemonstrationRequest(
            messages=row.messages, tools=row.tools, trained=row.trained
        )
        self._held.append((row.where, body.SerializeToString()))

    def taken(self) -> Iterator[Conversation]:
        """Each, which is no longer held when the next one is asked for."""
        self._held.reverse()
        while self._held:
            yield _unpacked(*self._held.pop())

    def __len__(self) -> int:
        """How many are held."""
        return len(self._held)

    @overload
    def __getitem__(self, place: int) -> Conversation: ...

    @overload
    def __getitem__(self, place: slice) -> list[Conversation]: ...

    def __getitem__(self, place: int | slice) -> Conversation | list[Conversation]:
        """One, or some of them."""
        if isinstance(place, slice):
            return [_unpacked(*each) for each in self._held[place]]
        return _unpacked(*self._held[place])


def _unpacked(where: str, body: bytes) -> Conversation:
    held = inference_pb.RenderDemonstrationRequest.FromString(body)
    return Conversation(where, list(held.messages), list(held.tools), tuple(held.trained))
