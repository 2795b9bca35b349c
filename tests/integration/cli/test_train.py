"""`podium train` against a stack that runs: the task is served by a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from podium.environment.v1 import environment_service_pb2 as pb
from podium.environment.v1 import environment_service_pb2_grpc as pb_grpc
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.local.launcher import upfile
from podium.local.launcher.layout import SERVICES
from support import job_records
from support.cli import invoke, podium, start
from support.fake_job_service import watched_job
from support.fake_podium import FakePodium, fake_podium
from support.main_thread import Command, MainThread, beside_commands


@asynccontextmanager
async def made_task(fake: FakePodium, tmp_path: Path) -> AsyncIterator[Path]:
    """A folder of `podium init`, and the doubles as a stack that runs beside it."""
    made = await invoke("init", "mytask", cwd=tmp_path)
    assert made.code == 0, made.err
    folder = tmp_path / "mytask"
    claim = upfile.Claim(folder / ".podium")
    entry = upfile.ServiceEntry(fake.address, "h", "m", 1, "log")
    entries = dict.fromkeys(SERVICES, entry)
    upfile.UpFile(os.getpid(), "0", "smollm2-135m-instruct", entries).write(folder / ".podium")
    yield folder
    claim.release()


@pytest.fixture
async def task(fake: FakePodium, tmp_path: Path) -> AsyncIterator[Path]:
    async with made_task(fake, tmp_path) as folder:
        yield folder


def records(fake: FakePodium) -> None:
    """What the double tells of any job: three steps, and evaluations before and after."""
    fake.jobs.updates = watched_job(job_records.job("mytask", 3, 3))
    fake.jobs.steps = job_records.steps(3)
    fake.jobs.evaluations = job_records.evaluations()
    fake.jobs.trajectories = job_records.episodes(0, 3, 2, 1)[:3]


def run_on(fake: FakePodium) -> None:
    """Has the job tell of its steps and not end."""
    fake.jobs.created_state = jobs.JOB_STATE_RUNNING
    fake.jobs.hold_watch = True
    records(fake)


async def described(address: str) -> str:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = pb_grpc.EnvironmentServiceStub(channel)
        return (await stub.Describe(pb.DescribeRequest())).name


@beside_commands
async def test_it_submits_follows_reports_and_leaves_nothing_running(
    main: MainThread, tmp_path: Path
) -> None:
    async with fake_podium() as fake, made_task(fake, tmp_path) as task:
        fake.jobs.created_state = jobs.JOB_STATE_SUCCEEDED
        records(fake)
        done = await main.podium("train", "task.py", "--steps", "3", cwd=task)
        assert done.code == 0, done.err
        job = fake.jobs.known["mytask"]
        assert (job.spec.training.steps, job.spec.environment.name) == (3, "mytask")
        assert "using the stack that runs in" in done.err
        assert "step 3/3" in done.err
        assert "reward and success by step" in done.out
        assert "podium chat --data-dir" in done.out
        assert "data-chart=" in (task / "mytask.html").read_text()
        with pytest.raises(grpc.aio.AioRpcError):
            await described(job.spec.environment.address)
        # The next run is a job of its own, at the same address.
        again = await main.podium("train", "task.py", "--steps", "3", cwd=task)
        assert again.code == 0, again.err
        second = fake.jobs.known["mytask-2"]
        assert second.spec.environment.address == job.spec.environment.address


async def test_after_ctrl_c_the_job_pauses_and_the_same_command_goes_on(
    fake: FakePodium, task: Path
) -> None:
    run_on(fake)
    process = await start("train", "task.py", cwd=task)
    job = await followed(fake, process)
    process.send_signal(signal.SIGINT)
    await pausing(job)
    out, err = await asyncio.wait_for(process.communicate(), 200)
    assert process.returncode == 130, err
    assert b"mytask has 0 of 16 steps, and goes on with the same command" in err
    assert b"Traceback" not in err
    assert out == b""
    with pytest.raises(grpc.aio.AioRpcError):
        await described(job.spec.environment.address)
    going = await start("train", "task.py", cwd=task)
    await resumed(fake, job)
    _, err = await asyncio.wait_for(going.communicate(), 200)
    assert b"going on with mytask" in err
    assert list(fake.jobs.known) == ["mytask"]


async def test_a_reader_that_has_enough_leaves_no_job_without_its_task(
    fake: FakePodium, task: Path
) -> None:
    run_on(fake)
    reading, writing = os.pipe()
    process = await start("train", "task.py", cwd=task, stderr=writing)
    os.close(writing)
    with os.fdopen(reading) as stderr:
        await asyncio.to_thread(lambda: next(line for line in stderr if "step 3/3" in line))
    job = fake.jobs.known["mytask"]
    more = fake.jobs.updates[-1]
    more.event.sequence += 1
    fake.jobs.updates.append(more)
    fake.jobs.released.set()
    paused, ended = asyncio.create_task(pausing(job)), asyncio.create_task(process.wait())
    await asyncio.wait({paused, ended}, return_when=asyncio.FIRST_COMPLETED)
    assert paused.done(), "it ended and left the job running"
    assert await asyncio.wait_for(ended, 200) == 1


@beside_commands
async def test_told_to_end_it_pauses_the_job_and_the_same_command_goes_on(
    main: MainThread, tmp_path: Path
) -> None:
    async with fake_podium() as fake, made_task(fake, tmp_path) as task:
        run_on(fake)
        command = await main.start("train", "task.py", cwd=task)
        job = await followed(fake, command)
        command.send_signal(signal.SIGTERM)
        await pausing(job)
        done = await command.wait()
        assert done.code == 130, done.err
        assert "mytask has 0 of 16 steps, and goes on with the same command" in done.err
        assert "Traceback" not in done.err
        assert done.out == ""
        with pytest.raises(grpc.aio.AioRpcError):
            await described(job.spec.environment.address)
        going = await main.start("train", "task.py", cwd=task)
        await resumed(fake, job)
        assert "going on with mytask" in (await going.wait()).err
        assert list(fake.jobs.known) == ["mytask"]


async def followed(fake: FakePodium, command: asyncio.subprocess.Process | Command) -> jobs.Job:
    """The job that `podium train` follows, once it has told of step 3."""
    assert command.stderr is not None
    seen = b""
    while b"step 3/3" not in seen:
        line = await asyncio.wait_for(command.stderr.readline(), 200)
        assert line, seen
        seen += line
    job = fake.jobs.known["mytask"]
    assert await described(job.spec.environment.address) == "mytask"
    return job


async def pausing(job: jobs.Job) -> None:
    """Its step is done some time after it was told to pause, and the task is there until then."""
    while job.state != jobs.JOB_STATE_PAUSING:
        await asyncio.sleep(0.01)
    assert await described(job.spec.environment.address) == "mytask"
    job.state = jobs.JOB_STATE_PAUSED


async def resumed(fake: FakePodium, job: jobs.Job) -> None:
    """It succeeds once the command has it go on."""
    fake.jobs.hold_watch = False
    while job.state == jobs.JOB_STATE_PAUSED:
        await asyncio.sleep(0.01)
    job.state = jobs.JOB_STATE_SUCCEEDED


async def test_what_cannot_train_is_told_before_anything_starts(
    fake: FakePodium, task: Path
) -> None:
    other = await invoke("train", "task.py", "--model", "org/other", cwd=task)
    assert other.code == 5
    assert "serves smollm2-135m-instruct, and the job is to train org/other" in other.err
    text = (task / "task.py").read_text()
    (task / "task.py").write_text(text.replace("reply == self.answer", "reply == self.anser"))
    broken = await invoke("train", "task.py", cwd=task)
    assert broken.code == 1
    assert "has no attribute 'anser'" in broken.err + broken.out
    assert "task.py would not train" in broken.err
    assert not fake.jobs.known


async def test_a_task_that_never_returns_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(
        "from podium.environments import Environment, Observation, Scenario, user\n"
        "class Mine(Environment):\n"
        "    name = 'mine'\n"
        "    def scenarios(self, split):\n"
        "        return [Scenario(split)]\n"
        "    async def reset(self, scenario, seed):\n"
        "        return Observation([user('?')])\n"
        "    async def step(self, action):\n"
        "        while True: pass\n"
    )
    done = await podium("env", "check", "task.py", "--timeout", "0.5", cwd=tmp_path)
    assert done.code == 1
    assert "step of Mine has not returned after 0.5 s" in done.err
    assert "it is at task.py:9" in done.err
