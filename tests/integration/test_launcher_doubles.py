"""The launcher over real processes that stand in for the services."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from podium.core.errors import AlreadyExistsError, FailedPreconditionError, UnavailableError
from podium.local.launcher import Event, EventKind, Launcher, LauncherConfig, upfile
from podium.local.launcher.config import RestartPolicy
from podium.local.launcher.layout import SERVICES
from support.fake_service import write_packages
from support.waiting import eventually

# However long a start takes, as many restarts as are allowed are too many.
FAST = RestartPolicy(window_seconds=3600, first_delay_seconds=0.05)


def config(tmp_path: Path, *services: str, **behaviours: str) -> LauncherConfig:
    environment = write_packages(tmp_path / "packages")
    environment |= {f"FAKE_{name.upper()}": value for name, value in behaviours.items()}
    environment["FAKE_PID_FILE"] = str(tmp_path / "grandchild")
    return LauncherConfig(
        data_dir=tmp_path / "data",
        port_base=0,
        services=services,
        restart=FAST,
        environment=environment,
        ready_timeout_seconds=120,
        stop_timeout_seconds=5,
    )


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


async def test_starts_all_six_writes_up_json_and_stops_without_orphans(tmp_path: Path) -> None:
    events: list[Event] = []
    async with Launcher(config(tmp_path), events.append) as stack:
        pids = [stack.pid(name) for name in SERVICES]
        assert all(map(alive, pids))
        found = upfile.read(tmp_path / "data")
        assert found is not None
        assert found.pid == os.getpid()
        assert found.services["trainer"].pid == stack.pid("trainer")
        assert found.services["controller"].address == stack.address("controller")
        assert len({stack.address(name) for name in SERVICES}) == 6
        assert "registry up" in stack.log("registry").read_text()
    assert not any(map(alive, pids))
    assert upfile.read(tmp_path / "data") is None
    assert {e.service for e in events if e.kind is EventKind.READY} == set(SERVICES)
    assert {e.service for e in events if e.kind is EventKind.STOPPED} == set(SERVICES)


async def test_second_launcher_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    async with Launcher(config(tmp_path, "judge")):
        with pytest.raises(AlreadyExistsError, match=f"process {os.getpid()}"):
            await Launcher(config(tmp_path, "judge")).start()
        assert upfile.read(tmp_path / "data") is not None


async def test_killed_service_is_reported_with_its_log_and_started_again(tmp_path: Path) -> None:
    events: list[Event] = []
    async with Launcher(config(tmp_path, "registry", "judge"), events.append) as stack:
        before, address = stack.pid("registry"), stack.address("registry")
        os.kill(before, signal.SIGKILL)
        await eventually(lambda: stack.restarts("registry") == 1)
        await stack.wait_ready("registry")
        assert stack.pid("registry") not in (0, before)
        assert stack.address("registry") == address
        assert stack.restarts("judge") == 0
        found = upfile.read(tmp_path / "data")
        assert found is not None
        assert found.services["registry"].pid == stack.pid("registry")
    crash = next(e for e in events if e.kind is EventKind.CRASHED)
    assert (crash.service, "SIGKILL" in crash.message) == ("registry", True)
    assert any(line.endswith("INFO registry up") for line in crash.log_tail)


async def test_gives_up_after_too_many_restarts(tmp_path: Path) -> None:
    events: list[Event] = []
    async with Launcher(config(tmp_path, "judge", judge="crash"), events.append) as stack:
        assert await asyncio.wait_for(stack.wait(), 200) == "judge"
        assert stack.restarts("judge") == 5
    assert "after 5 restarts" in events[-1].message
    assert "SIGABRT" in next(e.message for e in events if e.kind is EventKind.CRASHED)


async def test_service_that_refuses_its_configuration_stops_everything(tmp_path: Path) -> None:
    events: list[Event] = []
    launcher = Launcher(config(tmp_path, "registry", "judge", judge="refuse"), events.append)
    with pytest.raises(UnavailableError, match="judge could not be started"):
        await launcher.start()
    crash = next(e for e in events if e.kind is EventKind.CRASHED)
    assert "exit code 3" in crash.message
    assert crash.log_tail[-1] == "the database URL is wrong"
    assert launcher.pid("registry") == 0
    assert upfile.read(tmp_path / "data") is None


async def test_service_that_never_serves_is_named(tmp_path: Path) -> None:
    from dataclasses import replace

    told, seconds = "registry", 2
    # On a busy machine the other may need longer, too.
    while "registry" in told and seconds < 200:
        seconds *= 2
        mute = config(tmp_path, "registry", "judge", judge="mute")
        with pytest.raises(UnavailableError) as caught:
            await Launcher(replace(mute, ready_timeout_seconds=seconds)).start()
        told = caught.value.message
    assert told.startswith(f"not serving after {seconds} s: judge")


async def test_service_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    from dataclasses import replace

    events: list[Event] = []
    stubborn = replace(config(tmp_path, "judge", judge="stubborn"), stop_timeout_seconds=0.5)
    async with Launcher(stubborn, events.append) as stack:
        pid = stack.pid("judge")
    assert not alive(pid)
    assert [e.kind for e in events[-2:]] == [EventKind.KILLED, EventKind.STOPPED]


async def test_what_a_dead_service_left_behind_is_killed(tmp_path: Path) -> None:
    async with Launcher(config(tmp_path, "inference", inference="grandchild")) as stack:
        left = int((tmp_path / "grandchild").read_text())
        os.kill(stack.pid("inference"), signal.SIGKILL)
        await eventually(lambda: not alive(left))


async def test_taken_port_is_named(tmp_path: Path) -> None:
    import socket
    from dataclasses import replace

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        base = port - 2
        refused = replace(config(tmp_path, "inference"), port_base=base)
        with pytest.raises(FailedPreconditionError, match=rf"{port} \(inference\)"):
            await Launcher(refused).start()


_SCRIPT = """
import asyncio, sys
from pathlib import Path
from podium.local.launcher import Launcher, LauncherConfig

async def main():
    services = ("inference", "judge")
    config = LauncherConfig(data_dir=Path(sys.argv[1]), port_base=0, services=services)
    async with Launcher(config):
        print("up", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def start_script(data: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    launcher = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, str(data)], env=environment, stdout=subprocess.PIPE
    )
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == b"up\n"
    return launcher


async def test_nothing_outlives_a_killed_launcher(tmp_path: Path) -> None:
    environment = {**os.environ, **write_packages(tmp_path / "packages")}
    environment |= {"FAKE_INFERENCE": "grandchild", "FAKE_PID_FILE": str(tmp_path / "grandchild")}
    data = tmp_path / "data"
    launcher = start_script(data, environment)
    found = upfile.read(data)
    assert found is not None
    pids = [entry.pid for entry in found.services.values()]
    pids.append(int((tmp_path / "grandchild").read_text()))
    assert all(map(alive, pids))
    launcher.kill()
    launcher.wait()
    await eventually(lambda: not any(map(alive, pids)))
    assert upfile.read(data) is None, "a stale up.json must not count as running"
    async with Launcher(config(tmp_path, "judge")) as stack:
        assert alive(stack.pid("judge"))
