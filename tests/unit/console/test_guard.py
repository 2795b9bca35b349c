"""Whose page may do what with a browser, and with whose token."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from podium.jobs.v1 import job_service_pb2 as jobs
from podium_console.settings import Settings
from podium_console.web import guard
from support.console import MARK, Console, console
from support.fake_podium import FakePodium, fake_podium

pytestmark = pytest.mark.asyncio(loop_scope="session")

CALL = "/podium.jobs.v1.JobService/ListJobs"
TOKEN = "a-token.of~the+services=/"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def locked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FakePodium]:
    tokens = tmp_path_factory.mktemp("auth") / "tokens"
    tokens.write_text(f"{TOKEN}\nanother\n")
    async with fake_podium(auth_tokens_file=tokens) as fake:
        yield fake


async def test_a_token_lives_in_a_cookie_that_no_script_reads(locked: FakePodium) -> None:
    async with console(locked) as here:
        assert (await here.http.get("/session")).json()["welcome"] is False
        refused = await here.http.get("/api/jobs")
        assert refused.status_code == 401
        wrong = await here.http.post("/session", json={"token": "guess"}, headers=MARK)
        assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
        signed = await here.http.post("/session", json={"token": TOKEN}, headers=MARK)
        cookie = signed.headers["set-cookie"].lower()
        assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/"))
        assert TOKEN not in cookie
        assert (await here.http.get("/api/jobs")).status_code == 200
        assert (await here.http.get("/session")).json()["signed_in"] is True
        await here.http.delete("/session", headers=MARK)
        assert (await here.http.get("/api/jobs")).status_code == 401


async def test_a_program_presents_its_token_as_a_header(locked: FakePodium) -> None:
    async with console(locked) as here:
        headers = {"authorization": f"Bearer {TOKEN}"}
        assert (await here.http.get("/status", headers=headers)).status_code == 200
        assert (await here.http.get("/status")).status_code == 401


async def test_a_call_of_the_api_has_its_own_token_and_no_cookies(locked: FakePodium) -> None:
    """A page of somebody else's may have the browser send the cookie, but no token."""
    async with console(locked) as here:
        await here.http.post("/session", json={"token": TOKEN}, headers=MARK)
        assert (await here.http.get("/api/jobs")).status_code == 200
        refused = await here.http.post(CALL, json={})
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
        for wrong in ("Bearer", "Bearer guess", f"Basic {TOKEN}", f"Bearer {TOKEN} x", "Bearer ü"):
            headers = {"authorization": wrong.encode()}
            assert (await here.http.post(CALL, json={}, headers=headers)).status_code == 401
        mine = {"authorization": f"Bearer {TOKEN}"}
        assert (await here.http.post(CALL, json={}, headers=mine)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example", "content-type": "text/plain"},
    ],
)
async def test_a_foreign_page_calls_no_method(
    fake: FakePodium, here: Console, headers: dict[str, str]
) -> None:
    """Where no token is asked for, that this port can be reached from here is all it would need."""
    path = CALL.replace("ListJobs", "CancelJob")
    answer = await here.http.post(path, json={"jobId": "a"}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")
    asked = {**headers, "access-control-request-method": "POST"}
    leave = await here.http.request("OPTIONS", path, headers=asked)
    assert leave.status_code == 403
    assert not [name for name in leave.headers if name.startswith("access-control-allow")]
    assert fake.jobs.known["a"].state == jobs.JOB_STATE_RUNNING


async def test_a_call_by_a_foreign_name_is_refused(here: Console) -> None:
    named = await here.http.post(CALL, json={}, headers={"host": "evil.example"})
    assert (named.status_code, named.json()["code"]) == (421, "permission_denied")
    assert named.json()["details"][0]["debug"]["reason"] == "HOST_NOT_ALLOWED"


async def test_what_one_caller_may_see_is_not_shown_to_another(locked: FakePodium) -> None:
    """The counts are asked for once for many, but never with somebody else's token."""
    async with console(locked, refresh_seconds=60) as here:
        mine = {"authorization": f"Bearer {TOKEN}"}
        assert (await here.http.get("/status", headers=mine)).status_code == 200
        for theirs in ("Bearer guess", f"Bearer {TOKEN[:-1]}", "Basic"):
            answer = await here.http.get("/status", headers={"authorization": theirs})
            assert answer.status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {**MARK, "origin": "https://evil.example"},
        {**MARK, "origin": "null"},
        {**MARK, "origin": "http://["},
        {**MARK, "sec-fetch-site": "cross-site"},
        {**MARK, "sec-fetch-site": "same-site"},
    ],
)
async def test_a_foreign_page_changes_nothing(here: Console, headers: dict[str, str]) -> None:
    answer = await here.http.post("/api/jobs/a/cancel", json={}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["reason"]) == (403, "FOREIGN_PAGE")
    assert (await here.http.get("/api/jobs/a")).json()["state"] == "running"


async def test_what_is_no_json_changes_nothing(here: Console) -> None:
    """A form of another page can send these without asking."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        headers = {**MARK, "content-type": kind}
        answer = await here.http.post("/api/jobs/a/cancel", content=b"{}", headers=headers)
        assert answer.status_code == 415


async def test_a_name_that_somebody_else_gave_this_address_is_refused(here: Console) -> None:
    for name in ("evil.example", "evil.example:50058", "localhost.evil.example", ""):
        answer = await here.http.get("/status", headers={"host": name})
        assert answer.status_code in (400, 421), name
    for name in ("localhost:1", "127.0.0.1", "[::1]:50058", "LOCALHOST"):
        assert (await here.http.get("/status", headers={"host": name})).status_code == 200


async def test_every_answer_carries_the_rules_for_browsers(here: Console) -> None:
    for path in ("/", "/static/console.css", "/status", "/nothing", "/api/jobs/none"):
        headers = (await here.http.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert ("no-store" in headers["cache-control"]) is (
            path not in ("/", "/static/console.css")
        )


@pytest.mark.parametrize(
    "path",
    [
        "/static/../settings.py",
        "/static/%2e%2e/settings.py",
        "/static/..%2fsettings.py",
        "/static//etc/passwd",
        "/static/uplot/../../__init__.py",
        "/static/js/%00",
    ],
)
async def test_no_path_leads_out_of_the_pages_files(here: Console, path: str) -> None:
    assert (await here.http.get(path)).status_code in (400, 404)


async def test_a_body_has_a_bound_with_and_without_a_length(here: Console) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 65536

    headers = {**MARK, "content-type": "application/json"}
    told = await here.http.post("/api/jobs", content=b"x" * (1 << 20 | 1), headers=headers)
    streamed = await here.http.post("/api/jobs", content=endless(), headers=headers)
    assert (told.status_code, streamed.status_code) == (413, 413)


@pytest.mark.parametrize("token", ["", " ", "a b", "ü", "a\nb", "x" * (guard.TOKEN_BYTES + 1), 7])
async def test_what_cannot_be_a_token_is_named(here: Console, token: object) -> None:
    answer = await here.http.post("/session", json={"token": token}, headers=MARK)
    (violation,) = answer.json()["error"]["violations"]
    assert (answer.status_code, violation["field"]) == (400, "token")


@pytest.mark.parametrize(
    "header",
    ["", "podium", "podium=", "podium=%%%", "podium=w7w", 'podium="', "a=b; podium=!", "=;;="],
)
async def test_a_cookie_that_nobody_here_wrote_is_no_token(header: str) -> None:
    assert guard.read_cookie(header, "podium") == ""


async def test_a_cookie_of_https_is_for_https_alone() -> None:
    assert guard.cookie_name(Settings(public_https=True)) == "__Host-podium"
    assert guard.cookie_name(Settings()) == "podium"
    assert len(guard.write_cookie("x" * guard.TOKEN_BYTES)) < 3900


async def test_pages_are_told_no_more_when_too_many_are(fake: FakePodium) -> None:
    async with (
        console(fake, max_streams=1) as here,
        here.http.stream("GET", "/api/live") as first,
    ):
        # Kept: one that is thrown away closes the answer, and makes room.
        lines = first.aiter_lines()
        assert (await anext(lines)).startswith("retry")
        assert (await here.http.get("/api/live")).status_code == 429
