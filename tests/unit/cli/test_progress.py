"""How a job's progress and its numbers are shown."""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from podium.cli.columns import columns, cut
from podium.cli.html_report.plot import curves, whole_ticks
from podium.cli.output import emit_one, table
from podium.cli.progress import sparkline, status_line, step_line
from podium.cli.views import JOB
from podium.jobs.v1 import job_service_pb2 as pb
from support import job_records
from support.fake_podium import fake_podium


def test_a_cut_line_keeps_its_colours() -> None:
    line = click.style("running", bold=True) + "  12/20  reward"
    assert click.unstyle(cut(line, 10)) == "running  1"
    assert cut(line, 10).endswith("\x1b[0m  1")
    assert cut(line, 100) == line


def test_wide_letters_are_counted_as_they_stand() -> None:
    assert [columns(text) for text in ("", "abc", "任务", "e\u0301", "🙂a")] == [0, 3, 4, 1, 3]
    # Half of a letter cannot be shown: it would wrap, and stay when the line is drawn anew.
    assert (cut("任务 running", 3), cut("任务 running", 5)) == ("任", "任务 ")


def test_columns_stand_below_each_other_with_wide_letters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table(["JOB", "STEP"], [["任务", "2"], ["email-search", "11"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["JOB           STEP", "任务             2", "email-search    11"]
    assert {columns(line) for line in lines} == {18}


def test_a_long_id_stays_whole_in_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    name = "email-search-" * 5
    table(["JOB", "STATE"], [[name, "running"]])
    assert capsys.readouterr().out.splitlines()[1] == f"{name}  running"


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


def test_of_a_job_that_its_client_ends_no_number_of_steps_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = job_records.job(steps=1_000_000, done=3)
    assert click.unstyle(status_line(job, [])) == "running  train  3/1000000"
    job.spec.client.SetInParent()
    assert click.unstyle(status_line(job, [])) == "running  train  step 3"
    emit_one(job, JOB, "table")
    assert re.search(r"^steps +3$", capsys.readouterr().out, re.MULTILINE)
    assert step_line(job_records.steps(3)[-1], 0).startswith("step 3  reward")
    job.spec.training.steps = 10
    assert "3/10" in status_line(job, [])


def test_a_step_tells_how_fast_it_was_sampled_and_not_how_long_somebody_waited_for_it() -> None:
    step = job_records.steps(1)[0]
    # Another controller had collected it before this one looked.
    step.metrics["seconds/collect"] = 0.02
    assert "  640 tokens/s  " in step_line(step, 0)
    del step.metrics["tokens_per_second"]
    assert "tokens/s" not in step_line(step, 0)


def test_curves_of_any_numbers_are_drawn() -> None:
    bars = {
        "▁▅█": [-1.7e308, 0.0, 1.7e308],
        "▁█": [1.0, math.nan, 2.0],
        "": [math.nan],
        "▁": [1.0, math.inf],
    }
    assert [sparkline(values) for values in bars.values()] == list(bars)
    # In a process of its own, which plotext ended at NaN.
    code = (
        "from math import inf, nan\n"
        "from podium.cli.html_report.plot import draw\n"
        f"for number, values in enumerate({list(bars.values())}):\n"
        "    print(draw(f'reward {number}', [('r', list(enumerate(values, 1)), 'braille')]))"
    )
    drawn = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert re.findall(r"reward \d", drawn.stdout) == [f"reward {n}" for n in range(len(bars))]
    assert drawn.returncode == 0, drawn.stderr
