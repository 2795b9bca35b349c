"""Walks the pages of a List method."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Protocol, TypeVar


class _Request(Protocol):
    page_token: str


class _Response(Protocol):
    @property
    def next_page_token(self) -> str: ...


RequestT = TypeVar("RequestT", bound=_Request)
ResponseT = TypeVar("ResponseT", bound=_Response)
ItemT = TypeVar("ItemT")


async def pages(
    call: Callable[[RequestT], Awaitable[ResponseT]],
    request: RequestT,
    items: Callable[[ResponseT], Iterable[ItemT]],
) -> AsyncGenerator[ItemT, None]:
    """Every item of every page; `request` is reused with each page's token."""
    while True:
        response = await call(request)
        for item in items(response):
            yield item
        if not response.next_page_token:
            return
        request.page_token = response.next_page_token
