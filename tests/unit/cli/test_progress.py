"""How a job's progress and its numbers are shown."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from pathlib import Path

import click
import pytest
from podium.cli.html_report.plot import curves, whole_ticks
from podium.cli.output import emit_one
from podium.cli.progress import cut
from podium.cli.views import JOB
from podium.jobs.v1 import job_service_pb2 as pb
from support import job_records
from support.cli import COMMAND
from support.fake_podium import fake_podium, watched_job


def test_a_cut_line_keeps_its_colours() -> None:
    line = click.style("running", bold=True) + "  12/20  reward"
    assert click.unstyle(cut(line, 10)) == "running  1"
    assert cut(line, 10).endswith("\x1b[0m  1")
    assert cut(line, 100) == line


async def test_no_redrawn_line_is_wider_than_the_terminal(tmp_path: Path) -> None:
    """What is wider wraps, and its first row stays when the line is taken away."""
    columns = 40
    async with fake_podium() as fake:
        job = job_records.job("w", 3, 3)
        job.phase = "a phase with a name that is longer than a line"
        fake.jobs.known["w"] = job
        fake.jobs.updates = watched_job(job)
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PODIUM_")}
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *("job", "watch", "w"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=theirs,
            cwd=tmp_path,
            env={**environment, **fake.environment, "TERM": "xterm"} | {"NO_COLOR": ""},
        )
        os.close(theirs)
        shown = await asyncio.to_thread(read_all, ours)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    drawn = [part.split("\r\x1b[2K")[-1] for part in shown.split("\r\n")]
    redrawn = [part for row in shown.split("\r\n") for part in row.split("\r\x1b[2K")[:-1]]
    assert any("a phase with" in click.unstyle(part) for part in redrawn), shown
    assert all(len(click.unstyle(part)) < columns for part in redrawn), redrawn
    assert any(part.startswith("step") for part in map(click.unstyle, drawn))


def read_all(descriptor: int) -> str:
    seen = b""
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:
            part = b""
        if not part:
            os.close(descriptor)
            return seen.decode()
        seen += part


def test_a_job_s_many_numbers_are_several_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    job = pb.Job(id="w", latest_metrics={f"train/number_{n:02}": n / 7 for n in range(60)})
    emit_one(job, JOB, "table")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.count("train/number_") for line in lines) == 60
    assert all(line.startswith(("metrics", " ")) for line in lines if "train/number_" in line)


def test_steps_are_whole_numbers_on_the_axis() -> None:
    assert whole_ticks(1, 3) == [1, 2, 3]
    assert whole_ticks(0, 100) == [0, 15, 30, 45, 60, 75, 90]
    steps = [pb.Step(number=n, metrics={"reward_mean": n / 3}) for n in (1, 2, 3)]
    axis = curves(steps, [], colour=False, width=60).splitlines()[-1]
    assert axis.split() == ["1", "2", "3"]


async def test_plot_without_its_package_is_said_before_anything_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from podium.cli.main import run

    monkeypatch.setitem(sys.modules, "plotext", None)
    example = Path(__file__).parents[3] / "examples" / "email_search.yaml"
    async with fake_podium() as fake:
        for command in (["submit", "-f", str(example), "--follow"], ["watch", "w"]):
            arguments = ["job", *command, "--plot", "--address", fake.address]
            assert await asyncio.to_thread(run, arguments) == 5
            assert "--plot needs 'plotext'" in capsys.readouterr().err
        assert fake.jobs.known == {}
