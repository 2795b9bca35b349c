"""Lists and watches against an API server of the test's own, which breaks off as real ones do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration
from podium.kit.kubernetes.api import PODS, ClusterApi, Selection
from podium.kit.kubernetes.object_template import Manifest
from podium.kit.kubernetes.reflector import Reflector


def pod(name: str, version: int) -> Manifest:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}}


def gone() -> Manifest:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    return {"type": "ERROR", "object": status}


class ApiServerDouble:
    """Answers lists and watches from a script, and notes what it was asked."""

    def __init__(self) -> None:
        self.pages: list[Manifest] = []
        """What each list gets, in turn."""
        self.watches: list[list[Manifest] | int] = []
        """What each watch gets before it ends, or the status that refuses it."""
        self.asked: list[str] = []
        self.all_asked = asyncio.Event()
        """The script is at its end."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        if "watch" not in query:
            self.asked.append(f"list {query.get('continue', '')}".strip())
            return web.json_response(self.pages.pop(0))
        self.asked.append(f"watch {query['resourceVersion']}")
        if not self.watches:
            self.all_asked.set()
            await asyncio.Event().wait()
        script = self.watches.pop(0)
        if isinstance(script, int):
            return web.json_response({"message": "not now"}, status=script)
        response = web.StreamResponse()
        await response.prepare(request)
        for event in script:
            await response.write(json.dumps(event).encode() + b"\n")
        return response


@asynccontextmanager
async def serving(double: ApiServerDouble) -> AsyncIterator[ClusterApi]:
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/here/pods", double.answer)
    server = TestServer(app)
    # Whoever waits for the next event is sent away at the end.
    await server.start_server(shutdown_timeout=0.1)
    configuration = Configuration(host=str(server.make_url("")).rstrip("/"))
    async with ApiClient(configuration) as client:
        try:
            yield ClusterApi(client, "here")
        finally:
            await server.close()


async def told(double: ApiServerDouble) -> list[object]:
    """What a reflector tells until the script is at its end."""
    found: list[object] = []

    def on_all(items: list[Manifest]) -> None:
        found.append([each["metadata"]["name"] for each in items])

    on_change: Callable[[str, Manifest], None] = lambda kind, each: found.append(  # noqa: E731
        (kind, each["metadata"]["name"])
    )
    async with serving(double) as api:
        running = asyncio.create_task(Reflector(api, Selection(PODS), on_all, on_change).run())
        async with asyncio.timeout(30):
            await double.all_asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    return found


async def test_a_list_in_pages_and_then_what_changes() -> None:
    double = ApiServerDouble()
    double.pages = [
        {"metadata": {"continue": "next"}, "items": [pod("a", 1)]},
        {"metadata": {"resourceVersion": "7"}, "items": [pod("b", 2)]},
    ]
    double.watches = [[{"type": "ADDED", "object": pod("c", 8)}]]
    assert await told(double) == [["a", "b"], ("ADDED", "c")]
    assert double.asked == ["list", "list next", "watch 7", "watch 8"]


async def test_a_watch_that_ends_goes_on_where_it_was() -> None:
    double = ApiServerDouble()
    double.pages = [{"metadata": {"resourceVersion": "7"}, "items": []}]
    double.watches = [
        [{"type": "ADDED", "object": pod("a", 9)}, {"type": "BOOKMARK", "object": pod("", 12)}],
        503,
        [{"type": "DELETED", "object": pod("a", 13)}],
    ]
    assert await told(double) == [[], ("ADDED", "a"), ("DELETED", "a")]
    assert double.asked == ["list", "watch 7", "watch 12", "watch 12", "watch 13"]


@pytest.mark.parametrize("answer", [[gone()], 410], ids=["in the stream", "as a status"])
async def test_a_watch_that_is_too_old_begins_again_with_a_list(
    answer: list[Manifest] | int,
) -> None:
    double = ApiServerDouble()
    double.pages = [
        {"metadata": {"resourceVersion": "7"}, "items": [pod("a", 3)]},
        {"metadata": {"resourceVersion": "90"}, "items": [pod("b", 80)]},
    ]
    double.watches = [answer]
    assert await told(double) == [["a"], ["b"]]
    assert double.asked == ["list", "watch 7", "list", "watch 90"]
