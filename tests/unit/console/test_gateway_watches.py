"""Watches of the API over HTTP: lines for curl, envelopes for clients of Connect."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from podium_console.web import replies
from support.console import JOBS, Console, console, post
from support.fake_job_service import watched_job
from support.fake_podium import FakePodium

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_watch_is_a_line_an_update(fake: FakePodium, here: Console) -> None:
    fake.jobs.updates = watched_job(fake.jobs.known["a"])
    answer = await post(here, "WatchJob", {"jobId": "a", "afterSequence": 2})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    told = [json.loads(line) for line in answer.text.splitlines()]
    assert [update["event"]["sequence"] for update in told] == ["3", "4", "5", "6"]
    assert fake.jobs.watched_after == [2]


async def test_a_watch_that_breaks_says_so_last(fake: FakePodium, here: Console) -> None:
    fake.jobs.updates = watched_job(fake.jobs.known["a"])
    fake.jobs.break_watch_after = [2]
    answer = await post(here, "WatchJob", {"jobId": "a"})
    *told, last = [json.loads(line) for line in answer.text.splitlines()]
    assert (answer.status_code, len(told), last["error"]["code"]) == (200, 2, "unavailable")


async def test_a_quiet_watch_begins_and_says_that_it_lives(
    fake: FakePodium, here: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "KEEP_ALIVE_SECONDS", 0.01)
    fake.jobs.hold_watch = True
    request = here.http.build_request("POST", f"{JOBS}/WatchJob", json={"jobId": "a"})
    answer = await here.http.send(request, stream=True)
    lines = answer.aiter_lines()
    assert (answer.status_code, await anext(lines)) == (200, "")
    fake.jobs.updates = watched_job(fake.jobs.known["a"], 1)
    fake.jobs.released.set()
    told = [json.loads(line) async for line in lines if line]
    assert len(told) == len(fake.jobs.updates)


async def test_a_watch_ends_when_its_reader_goes(fake: FakePodium, here: Console) -> None:
    fake.jobs.updates, fake.jobs.hold_watch = watched_job(fake.jobs.known["a"]), True
    async with here.http.stream("POST", f"{JOBS}/WatchJob", json={"jobId": "a"}) as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        assert here.app.state.streams == 1
    async with asyncio.timeout(60):
        while here.app.state.streams:
            await asyncio.sleep(0.01)


async def test_watches_are_told_when_the_console_stops(fake: FakePodium) -> None:
    fake.jobs.updates, fake.jobs.hold_watch = watched_job(fake.jobs.known["a"], 1), True
    async with console(fake) as here:
        request = here.http.stream("POST", f"{JOBS}/WatchJob", json={"jobId": "a"})
        async with request as answer:
            lines = answer.aiter_lines()
            for _ in fake.jobs.updates:
                await anext(lines)
            here.draining.set()
            assert json.loads(await anext(lines))["error"]["code"] == "unavailable"


async def test_too_many_watches_are_refused(fake: FakePodium) -> None:
    fake.jobs.updates, fake.jobs.hold_watch = watched_job(fake.jobs.known["a"]), True
    async with (
        console(fake, max_streams=1) as here,
        here.http.stream("POST", f"{JOBS}/WatchJob", json={"jobId": "a"}) as first,
    ):
        # Kept: one that is thrown away closes the answer.
        lines = first.aiter_lines()
        await anext(lines)
        second = await post(here, "WatchJob", {"jobId": "a"})
        assert (second.status_code, second.json()["code"]) == (429, "resource_exhausted")


def envelopes(content: bytes) -> list[tuple[int, Any]]:
    """The flags and the JSON of each."""
    found = []
    while content:
        size = int.from_bytes(content[1:5], "big")
        found.append((content[0], json.loads(content[5 : 5 + size])))
        content = content[5 + size :]
    return found


def enveloped(body: bytes) -> bytes:
    return b"\0" + len(body).to_bytes(4, "big") + body


CONNECT = {"content_type": "application/connect+json"}


async def test_a_client_of_connect_watches_in_envelopes(fake: FakePodium, here: Console) -> None:
    fake.jobs.updates = watched_job(fake.jobs.known["a"])
    answer = await post(here, "WatchJob", enveloped(b'{"jobId": "a"}'), **CONNECT)
    assert answer.headers["content-type"] == "application/connect+json"
    *told, last = envelopes(answer.content)
    assert [flags for flags, _ in told] == [0] * 6
    assert [update["event"]["sequence"] for _, update in told] == list("123456")
    assert last == (2, {})


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_argument"),
        (b"\0\0", "invalid_argument"),
        (b"\0\0\0\0\xff{}", "invalid_argument"),
        (enveloped(b"{}") * 2, "invalid_argument"),
        (b"\1" + enveloped(b"{}")[1:], "unimplemented"),
        (enveloped(b"[]"), "invalid_argument"),
        (enveloped(b'{"job": 1}'), "invalid_argument"),
        (enveloped(b'{"jobId": "none"}'), "not_found"),
    ],
)
async def test_what_is_wrong_with_an_enveloped_call_is_its_last_envelope(
    here: Console, body: bytes, code: str
) -> None:
    answer = await post(here, "WatchJob", body, **CONNECT)
    ((flags, last),) = envelopes(answer.content)
    assert (answer.status_code, flags, last["error"]["code"]) == (200, 2, code)
