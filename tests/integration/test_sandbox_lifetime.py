"""A sandbox ends when it should, leaves nothing, and is never replaced by nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from podium.core.errors import FailedPreconditionError
from podium.environments.sandbox import Limits, Sandbox
from support.namespaces import needs_namespaces
from support.sandboxed import MIB, Marked, outside, run
from support.waiting import eventually

pytestmark = needs_namespaces


async def test_cancelling_kills_the_whole_tree() -> None:
    marked = Marked(processes=2)
    program = "import os, time\nos.fork()\ntime.sleep(1000)"
    task = asyncio.create_task(marked.sandbox.run(program))
    await eventually(lambda: len(marked.pids()) >= 4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert marked.pids() == []


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.01, 0.03, 0.06, 0.1])
async def test_cancelling_during_the_start_leaves_nothing(delay: float) -> None:
    marked = Marked()
    before = len(os.listdir("/proc/self/fd"))
    task = asyncio.create_task(marked.sandbox.run("import time\ntime.sleep(1000)"))
    await asyncio.sleep(delay)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: marked.pids() == [])
    await eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def test_the_sandbox_dies_with_its_parent() -> None:
    marked = Marked()
    program = "print(1, flush=True)\nimport time\ntime.sleep(1000)"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import asyncio, sys\nfrom podium.environments.sandbox import Limits, Sandbox\n"
            "limits = Limits.model_validate_json(sys.argv[1])\n"
            "asyncio.run(Sandbox(limits).run(sys.argv[2]))",
            marked.sandbox.limits.model_dump_json(),
            program,
        ]
    )
    try:
        await eventually(lambda: len(marked.pids()) >= 2)
    finally:
        parent.kill()
        parent.wait()
    await eventually(lambda: marked.pids() == [])


AS_PROCESS_ONE = """
import asyncio, ctypes, json, os
from podium.environments.sandbox import Limits, Sandbox
ctypes.CDLL(None).prctl(36, 1)
leave = "import os, time\\nif os.fork() == 0: time.sleep(1000)"
asyncio.run(Sandbox(Limits(processes=2)).run(leave))
try:
    print(json.dumps(os.waitpid(-1, os.WNOHANG)))
except ChildProcessError:
    print('null')
"""


def test_process_one_of_a_container_collects_no_dead_processes() -> None:
    """It inherits what others leave, which stays a zombie until it is waited for."""
    assert outside(AS_PROCESS_ONE) is None


async def test_no_more_programs_run_at_once_than_allowed() -> None:
    bounded = Sandbox(Limits(wall_seconds=60), concurrency=2)
    program = "import time\nprint(time.monotonic())\ntime.sleep(0.3)\nprint(time.monotonic())"
    began = time.monotonic()
    outcomes = await asyncio.gather(*(bounded.run(program) for _ in range(5)))
    spans = [tuple(map(float, outcome.stdout.split())) for outcome in outcomes]
    assert all(began < start < end for start, end in spans)
    most = max(sum(start <= moment < end for start, end in spans) for moment, _ in spans)
    assert most <= 2


def test_one_sandbox_serves_event_loops_one_after_the_other() -> None:
    shared = Sandbox(Limits(wall_seconds=60), concurrency=1)

    async def two() -> list[bytes]:
        outcomes = await asyncio.gather(*(shared.run("print(1)") for _ in range(2)))
        return [outcome.stdout for outcome in outcomes]

    assert asyncio.run(two()) == asyncio.run(two()) == [b"1\n", b"1\n"]


async def test_without_bubblewrap_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FailedPreconditionError, match="bubblewrap") as caught:
        await run(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert caught.value.reason == "SANDBOX_UNAVAILABLE"
    assert not (tmp_path / "ran").exists()


async def test_a_sandbox_that_cannot_be_made_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine where a user may not make namespaces."""
    script = tmp_path / "bwrap"
    script.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(FailedPreconditionError, match="No permissions to create") as caught:
        await run("print(1)")
    assert caught.value.reason == "SANDBOX_UNAVAILABLE"


def test_limits_leave_room_for_python_and_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="memory_bytes / processes"):
        Limits(memory_bytes=64 * MIB, processes=2)
    with pytest.raises(ValueError, match="wall_second"):
        Limits.model_validate({"wall_second": 3})
