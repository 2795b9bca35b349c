"""The command at a terminal, and in a process of its own: signals, and what another starts."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import click
import pytest
from podium.jobs.v1 import job_service_pb2 as jobs
from support import job_records
from support.cli import at_terminal, invoke, podium, start
from support.cli_user import Cli, add_job
from support.fake_job_service import watched_job
from support.fake_podium import fake_podium


async def test_an_evaluation_is_the_same_in_another_process(tmp_path: Path) -> None:
    """No order of a set, and nothing kept from the first, is in it."""
    arguments = ("eval", "email_search", "--limit", "12", "-a", "baseline:scripted", "-o", "json")
    first = await invoke(*arguments, "--attempts", "2", cwd=tmp_path)
    assert len(json.loads(first.out)[0]["episodes"]) == 24
    again = await podium(*arguments, "--attempts", "2", cwd=tmp_path)
    assert again.out == first.out


async def test_ctrl_c_leaves_the_job_running_and_says_how_to_go_on(cli: Cli) -> None:
    add_job(cli.fake, state="RUNNING")
    cli.fake.jobs.hold_watch = True
    process = await start("job", "watch", "w", cwd=cli.folder, environment=cli.fake.environment)
    assert process.stderr is not None
    seen = b""
    while b"step 3/3" not in seen:
        seen += await asyncio.wait_for(process.stderr.readline(), 90)
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(process.communicate(), 90)
    assert process.returncode == 130
    assert out == b""
    assert b"job w keeps running" in err
    assert b"podium job watch w" in err
    assert b"podium job cancel w" in err
    assert b"Traceback" not in err
    assert cli.fake.jobs.known["w"].state == jobs.JOB_STATE_RUNNING


async def test_the_plain_grpc_example_submits_and_prints_events(cli: Cli) -> None:
    example = Path(__file__).parents[3] / "examples" / "submit_grpc.py"
    lines = [line for line in example.read_text().splitlines() if line.strip()]
    assert len(lines) <= 20
    assert not [line for line in lines if "podium.sdk" in line or "podium.kit.rpc" in line]
    job = job_records.job("job-1", 3, 3)
    cli.fake.jobs.updates = watched_job(job)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(example), cli.fake.address, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 90)
    assert process.returncode == 0
    assert out.decode().splitlines()[-1] == "job-1 6 succeeded"
    assert list(cli.fake.jobs.known) == ["job-1"]


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
async def test_colours_only_on_a_terminal_that_wants_them(
    cli: Cli, variables: dict[str, str], coloured: bool
) -> None:
    add_job(cli.fake)
    environment = {"TERM": "xterm", **cli.fake.environment, **variables}
    done = await at_terminal("job", "list", cwd=cli.folder, environment=environment)
    assert done.code == 0, done.err
    assert "succeeded" in done.out
    assert ("\x1b[" in done.out) == coloured


async def test_a_live_terminal_shows_one_status_line(cli: Cli) -> None:
    add_job(cli.fake)
    done = await at_terminal(
        *("job", "watch", "w"),
        cwd=cli.folder,
        environment=cli.fake.environment,
        streams=("stderr",),
    )
    assert done.code == 0, done.err
    assert "\r\x1b[2K" in done.err, "the status line is redrawn"
    assert "▁" in done.err, "with a sparkline"
    assert "step 3/3" in done.err


async def test_chat_in_a_terminal_keeps_the_conversation(cli: Cli) -> None:
    done = await at_terminal(
        "chat",
        cwd=cli.folder,
        environment=cli.fake.environment,
        streams=("stdin",),
        # Ctrl-D at the end: what reads on is not waited for.
        typed="a b\nc d\n/reset\ne f\n/exit\n\x04",
    )
    assert done.code == 0, done.err
    for answer in ("b a", "d c", "f e"):
        assert answer in done.out
    assert "talking to the base model" in done.err
    said = [[m.content for m in chat.messages] for chat in cli.fake.inference.chats]
    assert said == [["a b"], ["a b", "b a", "c d"], ["e f"]]


async def test_no_redrawn_line_is_wider_than_the_terminal(tmp_path: Path) -> None:
    """What is wider wraps, and its first row stays when the line is taken away."""
    columns = 40
    async with fake_podium() as fake:
        job = job_records.job("w", 3, 3)
        job.phase = "a phase with a name that is longer than a line"
        fake.jobs.known["w"] = job
        fake.jobs.updates = watched_job(job)
        done = await at_terminal(
            *("job", "watch", "w"),
            cwd=tmp_path,
            environment={**fake.environment, "TERM": "xterm", "NO_COLOR": ""},
            streams=("stderr",),
            columns=columns,
        )
        assert done.code == 0, done.err
    shown = done.err
    drawn = [part.split("\r\x1b[2K")[-1] for part in shown.split("\r\n")]
    redrawn = [part for row in shown.split("\r\n") for part in row.split("\r\x1b[2K")[:-1]]
    assert any("a phase with" in click.unstyle(part) for part in redrawn), shown
    assert all(len(click.unstyle(part)) < columns for part in redrawn), redrawn
    assert any(part.startswith("step") for part in map(click.unstyle, drawn))
