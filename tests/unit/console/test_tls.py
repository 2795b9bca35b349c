"""HTTPS: the console's own certificate opens nothing for who has neither token nor certificate."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from podium_console.adapters import http_server
from support.certificates import Authority
from support.console import MARK, Console, console
from support.fake_podium import FakePodium, fake_podium

NAMES = ("localhost", "127.0.0.1")


@pytest.fixture
def authority() -> Authority:
    return Authority("here")


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> dict[str, Path]:
    issued = authority.issue(tmp_path / "own", *NAMES)
    return {f"tls_{name}_file": path for name, path in issued.items()}


@pytest.fixture
async def fake(files: dict[str, Path], tmp_path: Path) -> AsyncIterator[FakePodium]:
    tokens = tmp_path / "tokens"
    tokens.write_text("the-token\n")
    async with fake_podium(**files, auth_tokens_file=tokens) as found:
        yield found


def client(here: Console, authority: Authority, folder: Path | None = None) -> httpx.AsyncClient:
    """One that trusts the authority, and shows a certificate of its when there is a folder."""
    context = ssl.create_default_context(cadata=authority.pem.decode())
    if folder is not None:
        mine = authority.issue(folder, "a-person")
        context.load_cert_chain(mine["certificate"], mine["key"])
    return httpx.AsyncClient(base_url=here.url, verify=context, timeout=60)


async def test_who_shows_no_certificate_is_not_heard(
    fake: FakePodium, files: dict[str, Path], authority: Authority, tmp_path: Path
) -> None:
    async with console(fake, **files) as here:
        async with client(here, authority) as nobody:
            with pytest.raises(httpx.TransportError):
                await nobody.get("/")
        async with client(here, authority, tmp_path / "theirs") as person:
            assert (await person.get("/")).status_code == 200
            assert (await person.get("/status")).status_code == 401


async def test_where_tokens_are_asked_for_they_alone_open_and_their_cookie_is_of_https(
    fake: FakePodium, files: dict[str, Path], authority: Authority
) -> None:
    async with (
        console(fake, **files, client_certificates=False) as here,
        client(here, authority) as person,
    ):
        assert (await person.get("/status")).status_code == 401
        signed = await person.post("/session", json={"token": "the-token"}, headers=MARK)
        cookie = signed.headers["set-cookie"]
        assert cookie.startswith("__Host-podium=")
        assert "secure" in cookie.lower()
        assert "max-age" in signed.headers["strict-transport-security"]
        assert (await person.get("/status")).status_code == 200


async def test_a_call_of_the_api_goes_on_by_tls_with_its_own_token(
    fake: FakePodium, files: dict[str, Path], authority: Authority
) -> None:
    async with (
        console(fake, **files, client_certificates=False) as here,
        client(here, authority) as person,
    ):
        path = "/podium.jobs.v1.JobService/ListJobs"
        assert (await person.post(path, json={})).status_code == 401
        mine = {"authorization": "Bearer the-token"}
        assert (await person.post(path, json={}, headers=mine)).status_code == 200


async def test_a_certificate_that_is_renewed_is_shown_without_a_restart(
    fake: FakePodium,
    files: dict[str, Path],
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "_LOOK_SECONDS", 0.01)
    async with console(fake, **files, client_certificates=False) as here:
        before = await shown(here, authority)
        for name, path in authority.issue(tmp_path / "new", *NAMES).items():
            path.replace(files[f"tls_{name}_file"])
        async with asyncio.timeout(60):
            while await shown(here, authority) == before:
                await asyncio.sleep(0.01)


async def test_callers_of_another_authority_are_taken_and_those_of_the_old_one_no_more(
    fake: FakePodium,
    files: dict[str, Path],
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "_LOOK_SECONDS", 0.01)
    new = Authority("new")
    async with console(fake, **files) as here:
        for name, path in new.issue(tmp_path / "new", *NAMES).items():
            path.replace(files[f"tls_{name}_file"])
        async with asyncio.timeout(60):
            while not await heard(here, shows=new, folder=tmp_path / "theirs"):
                await asyncio.sleep(0.01)
        assert not await heard(here, shows=authority, folder=tmp_path / "old")


async def test_half_a_renewal_leaves_the_certificate_that_is_shown(
    fake: FakePodium,
    files: dict[str, Path],
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(http_server, "_LOOK_SECONDS", 0.01)
    async with console(fake, **files, client_certificates=False) as here:
        before = await shown(here, authority)
        new = authority.issue(tmp_path / "new", *NAMES)
        new["certificate"].replace(files["tls_certificate_file"])
        async with asyncio.timeout(60):
            while "stays in force" not in caplog.text:
                await asyncio.sleep(0.01)
        assert await shown(here, authority) == before


async def heard(here: Console, *, shows: Authority, folder: Path) -> bool:
    """Whether a person with a certificate of this authority is answered, whatever is shown."""
    mine = shows.issue(folder, "a-person")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(mine["certificate"], mine["key"])
    async with httpx.AsyncClient(base_url=here.url, verify=context, timeout=60) as person:
        try:
            return (await person.get("/")).status_code == 200
        except httpx.TransportError:
            return False


async def shown(here: Console, authority: Authority) -> bytes | None:
    """The certificate of a new connection."""
    context = ssl.create_default_context(cadata=authority.pem.decode())
    port = int(here.url.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return found
