"""`podium up`, once as a process, and `status`, `down` and `doctor` of what it runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from podium.local.launcher import upfile
from podium.local.launcher.layout import SERVICES
from support.cli import invoke, podium, start
from support.fake_service import write_packages
from support.hub_here import hub_at
from support.main_thread import Command, MainThread, beside_commands


def doubles(tmp_path: Path, **behaviours: str) -> dict[str, str]:
    """Variables with which `podium up` starts doubles of the services."""
    environment = write_packages(tmp_path / "packages")
    return environment | {f"FAKE_{name.upper()}": value for name, value in behaviours.items()}


@asynccontextmanager
async def up(tmp_path: Path, *arguments: str) -> AsyncIterator[Process]:
    """`podium up` on free ports with doubles of the services, once it is ready."""
    process = await start(
        "up", "--port-base", "0", *arguments, cwd=tmp_path, environment=doubles(tmp_path)
    )
    try:
        await read_until(process.stderr, b"podium job init")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def up_here(main: MainThread, tmp_path: Path, *arguments: str, **behaviours: str) -> Command:
    """Of two services, in this process, once it is ready."""
    command = await main.start(
        *("up", "--port-base", "0", "--only", "registry,judge", *arguments),
        cwd=tmp_path,
        environment=doubles(tmp_path, **behaviours),
    )
    await read_until(command.stderr, b"podium job init")
    return command


def kill_the_judge(tmp_path: Path) -> None:
    running = upfile.read(tmp_path / ".podium")
    assert running is not None
    os.kill(running.services["judge"].pid, signal.SIGKILL)


async def read_until(stderr: asyncio.StreamReader | None, words: bytes) -> bytes:
    assert stderr is not None
    seen = b""
    while words not in seen:
        line = await asyncio.wait_for(stderr.readline(), 200)
        assert line, f"ended before {words!r}: {seen.decode()}"
        seen += line
    return seen


def left(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def pids(folder: Path) -> list[int]:
    running = upfile.read(folder)
    assert running is not None
    return [entry.pid for entry in running.services.values()]


async def test_status_down_and_where_commands_find_the_stack(tmp_path: Path) -> None:
    async with up(tmp_path) as process:
        below = tmp_path / "deep" / "er"
        below.mkdir(parents=True)
        found = await invoke("status", "-o", "json", cwd=below)
        assert found.code == 0
        status = json.loads(found.out)
        assert {service["health"] for service in status["services"].values()} == {"SERVING"}
        assert status["services"].keys() == {*SERVICES, "console"}
        done = await invoke("doctor", "-o", "json", cwd=tmp_path)
        findings = {finding["name"]: finding for finding in json.loads(done.out)}
        assert {findings[name]["status"] for name in SERVICES} == {"ok"}
        children = pids(tmp_path / ".podium")
        second = await podium("up", "--only", "judge", cwd=tmp_path)
        assert second.code == 5
        assert f"process {process.pid}" in second.err
        assert "podium down" in second.err
        done = await invoke("down", cwd=tmp_path)
        assert done.code == 0
        assert await asyncio.wait_for(process.wait(), 120) == 0
        assert left(children) == []
        assert (await invoke("status", cwd=tmp_path)).code == 3


async def test_ctrl_c_stops_everything(tmp_path: Path) -> None:
    async with up(tmp_path, "--only", "registry,judge") as process:
        children = pids(tmp_path / ".podium")
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 120) == 0
        assert left(children) == []


@beside_commands
async def test_a_crash_is_told_by_name_with_the_log(main: MainThread, tmp_path: Path) -> None:
    command = await up_here(main, tmp_path)
    kill_the_judge(tmp_path)
    told = (await read_until(command.stderr, b"serves after")).decode()
    assert "judge" in told
    assert "SIGKILL" in told
    assert "INFO judge up" in told
    assert "restarts in" in told
    children = pids(tmp_path / ".podium")
    command.send_signal(signal.SIGTERM)
    assert (await command.wait()).code == 0
    assert left(children) == []


@pytest.mark.full
@beside_commands
async def test_a_service_that_does_not_stay_up_ends_everything_with_1(
    main: MainThread, tmp_path: Path
) -> None:
    command = await up_here(main, tmp_path, judge="crash")
    told = (await read_until(command.stderr, b"stopping everything")).decode()
    assert "after 5 restarts" in told
    assert (await command.wait()).code == 1


async def test_a_model_that_is_not_here_is_told_before_anything_starts(tmp_path: Path) -> None:
    cache = {"PODIUM_MODELS_DIR": str(tmp_path / "models")}
    with hub_at("http://127.0.0.1:1", tmp_path / "hf"):
        done = await invoke("up", "--model", "nobody/nothing", cwd=tmp_path, environment=cache)
    assert done.code == 3, done.err
    assert "model 'nobody/nothing' could not be fetched from the Hugging Face hub" in done.err
    assert "Traceback" not in done.err
    done = await invoke("up", "--model", "nothing", cwd=tmp_path, environment=cache)
    assert (done.code, "base model 'nothing' is not in" in done.err) == (2, True), done.err
    assert not (tmp_path / ".podium").exists()


async def test_unknown_service_is_a_usage_error(tmp_path: Path) -> None:
    done = await invoke("up", "--only", "regsitry", cwd=tmp_path)
    assert done.code == 2
    assert "regsitry" in done.err


@pytest.mark.long
@beside_commands
async def test_no_restart_ends_everything_at_the_first_death(
    main: MainThread, tmp_path: Path
) -> None:
    command = await up_here(main, tmp_path, "--no-restart")
    kill_the_judge(tmp_path)
    assert (await command.wait()).code == 1
