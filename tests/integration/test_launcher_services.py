"""The launcher with the real services that need no engine."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.request
from dataclasses import replace
from pathlib import Path

import grpc
import httpx
import pytest
from podium.core.errors import InvalidArgumentError, UnauthenticatedError
from podium.local.launcher import Event, EventKind, Launcher, LauncherConfig
from podium.sdk import AsyncClient
from podium.sdk.connection.addresses import Addresses, locate
from support.full import full
from support.waiting import eventually

LIGHT = ("controller", "registry", "rollout", "judge")
# As in the shells of companies, where nobody says NO_PROXY. httpx can read none of the last kind.
PROXIES = {
    **dict.fromkeys(("grpc_proxy", "http_proxy", "https_proxy"), "http://127.0.0.1:9"),
    "all_proxy": "socks://127.0.0.1:9",
    "no_proxy": "",
    "NO_PROXY": "",
}


def config(tmp_path: Path, **changes: object) -> LauncherConfig:
    settings = {"data_dir": tmp_path / "data", "port_base": 0, "services": LIGHT, **changes}
    return LauncherConfig(**settings)


def client_of(stack: Launcher, token: str = "") -> AsyncClient:
    return AsyncClient(
        Addresses(
            controller=stack.address("controller"),
            registry=stack.address("registry"),
            rollout=stack.address("rollout"),
            token=token,
        )
    )


# An environment of Gymnasium in the folder, which says that it was found.
OF_THE_FOLDER = {"name": "gymnasium", "config": {"id": "corridor:Any-v0"}}
CORRIDOR = "raise ValueError('corridor was found')"
# What people call their own files; each is a module of Python's or of a library's too.
NAMES = ("types", "queue", "random", "datasets", "httpx", "judge")


async def test_real_services_answer_where_the_launcher_says_and_end_cleanly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is mine')")
    (tmp_path / "corridor.py").write_text(CORRIDOR)
    # Longer than the path of a Unix socket may be.
    (temporary := tmp_path / ("t" * 110)).mkdir()
    here = PROXIES | {"PODIUM_ROLLOUT_WORKERS": "2", "TMPDIR": str(temporary)}
    events: list[Event] = []
    async with Launcher(config(tmp_path, environment=here), events.append) as stack:
        async with client_of(stack) as client:
            assert [job async for job in client.jobs.list()] == []
            assert [model async for model in client.checkpoints.models()] == []
            assert "email_search" in {item.name for item in await client.environments.list()}
            with pytest.raises(InvalidArgumentError, match="corridor was found"):
                await client.environments.scenarios(OF_THE_FOLDER, "train")
        for name in LIGHT:
            url = f"http://{stack.metrics_address(name)}/metrics"
            with await asyncio.to_thread(urllib.request.urlopen, url, timeout=60) as page:
                assert b"podium_grpc_server_handled_total" in page.read()
    stopped = {event.service: event.message for event in events if event.kind is EventKind.STOPPED}
    assert stopped == dict.fromkeys(LIGHT, "exit code 0")


@pytest.mark.parametrize("name", ["controller", *map(full, LIGHT[1:])])
async def test_a_killed_service_comes_back_at_its_address(tmp_path: Path, name: str) -> None:
    events: list[Event] = []
    # One beside it, which is left alone.
    services = (name, "judge" if name != "judge" else "registry")
    async with Launcher(config(tmp_path, services=services), events.append) as stack:
        before, address = stack.pid(name), stack.address(name)
        os.kill(before, signal.SIGKILL)
        await eventually(lambda: stack.restarts(name) == 1 and stack.is_ready(name))
        assert stack.pid(name) != before
        async with grpc.aio.insecure_channel(address) as channel:
            await asyncio.wait_for(channel.channel_ready(), 120)
        assert sum(map(stack.restarts, services)) == 1
    crash = next(event for event in events if event.kind is EventKind.CRASHED)
    assert (crash.service, "SIGKILL" in crash.message) == (name, True)
    assert crash.log_tail, "the last log lines are told"


async def only_the_token_opens(stack: Launcher, data_dir: Path) -> None:
    mode = (await asyncio.to_thread((data_dir / "token").stat)).st_mode
    assert mode & 0o077 == 0
    found = locate(data_dir=data_dir)
    assert found.token
    async with client_of(stack) as client:
        with pytest.raises(UnauthenticatedError):
            await client.environments.list()
    async with AsyncClient(found) as client:
        assert await client.environments.list()
        assert [job async for job in client.jobs.list()] == []


async def test_s17_s18_only_the_token_opens_and_the_console_shows_what_its_caller_may_see(
    tmp_path: Path,
) -> None:
    events: list[Event] = []
    chosen = replace(config(tmp_path, auth=True), services=(*LIGHT, "console"))
    async with Launcher(chosen, events.append) as stack:
        await only_the_token_opens(stack, tmp_path / "data")
        token = (await asyncio.to_thread((tmp_path / "data" / "token").read_text)).strip()
        async with httpx.AsyncClient(base_url=stack.console_url, timeout=60) as http:
            assert "<title>Podium</title>" in (await http.get("/")).text
            assert (await http.get("/status")).status_code == 401
            found = await http.get("/status", headers={"authorization": f"Bearer {token}"})
            metrics = await http.get(f"http://{stack.metrics_address('console')}/metrics")
        assert found.status_code == 200
        assert found.json()["active_clients"] == 1
        assert found.json()["clients"][0]["address"] == stack.address("rollout")
        assert 'podium_console_requests_total{route="/status",status="401"}' in metrics.text
    ends = {e.service: e.message for e in events if e.kind is EventKind.STOPPED}
    assert "exit code 0" in ends["console"] or "status 0" in ends["console"], ends["console"]
