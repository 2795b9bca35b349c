"""Client streams whose first message says what the others are about."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Literal, Protocol, TypeVar

from podium.core.errors import InvalidArgumentError, Violation
from podium.types.v1 import trajectory_pb2

Header = TypeVar("Header")
Header_co = TypeVar("Header_co", covariant=True)


class HeaderOrGroup(Protocol[Header_co]):
    """A message with `oneof item { Header header; Group group }`."""

    @property
    def header(self) -> Header_co:
        """In the first message of a stream, and in no other."""

    @property
    def group(self) -> trajectory_pb2.Group:
        """In every other."""

    def WhichOneof(  # noqa: N802
        self, oneof_group: Literal["item", b"item"]
    ) -> Literal["header", "group"] | None:
        """As protobuf's."""


async def header_and_groups(
    requests: AsyncIterator[HeaderOrGroup[Header]],
    check: Callable[[Header], Any] = lambda header: None,
) -> tuple[Header, list[trajectory_pb2.Group]]:
    """The whole stream. `check` sees the header before a group is awaited: what must fail on it
    need not be sent the groups.

    Raises:
        InvalidArgumentError: the first message is not the header, another one is not a group.
    """
    header: Header | None = None
    groups: list[trajectory_pb2.Group] = []
    async for request in requests:
        kind = request.WhichOneof("item")
        if header is None and kind == "header":
            header = request.header
            check(header)
        elif header is not None and kind == "group":
            groups.append(request.group)
        else:
            wanted = "a group" if header is not None else "the header first"
            raise _wrong_order(f"got {kind or 'nothing'}; allowed is {wanted}")
    if header is None:
        raise _wrong_order("got an empty stream; allowed is the header first, then groups")
    return header, groups


def _wrong_order(description: str) -> InvalidArgumentError:
    return InvalidArgumentError(violations=[Violation("item", description)])
