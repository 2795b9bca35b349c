"""`podium job metrics`: numbers by step, as a table, as data and as curves."""

from __future__ import annotations

import csv
import json
import math
import sys

import pytest
from podium.jobs.v1 import job_service_pb2 as jobs
from support import job_records
from support.cli import at_terminal
from support.cli_user import Cli, add_job


async def test_a_table_has_the_usual_numbers_and_data_has_all(cli: Cli) -> None:
    add_job(cli.fake)
    done = await cli("job", "metrics", "w")
    lines = done.out.splitlines()
    assert (done.code, len(lines)) == (0, 4)
    assert lines[0].split()[:3] == ["STEP", "reward_mean", "success_mean"]
    assert "seconds/judge" not in lines[0]
    rows = json.loads((await cli("job", "metrics", "w", "-o", "json")).out)
    assert [(row["job"], row["step"]) for row in rows] == [("w", 1), ("w", 2), ("w", 3)]
    assert list(rows[0]) == ["job", "step", "commit_time", "metrics"]
    assert set(rows[0]["metrics"]) == set(cli.fake.jobs.steps[0].metrics)
    assert rows[2]["commit_time"] == "2027-01-15T08:00:51Z"
    table = list(csv.DictReader((await cli("job", "metrics", "w", "-o", "csv")).out.splitlines()))
    assert float(table[1]["train/entropy"]) == rows[1]["metrics"]["train/entropy"]


async def test_metrics_are_chosen_by_name_or_pattern(cli: Cli) -> None:
    add_job(cli.fake)
    done = await cli("job", "metrics", "w", "--metric", "seconds/*", "--metric", "reward_mean")
    head = done.out.splitlines()[0].split()
    assert head[1:3] == ["seconds/collect", "seconds/judge"]
    assert head[-1] == "reward_mean"
    wrong = await cli("job", "metrics", "w", "--metric", "reward_maen")
    assert (wrong.code, wrong.out) == (2, "")
    assert "did you mean 'reward_mean'?" in wrong.err


async def test_two_jobs_are_drawn_over_each_other(cli: Cli) -> None:
    for name in ("a", "b"):
        add_job(cli.fake, name)
    drawn = await cli("job", "metrics", "a", "b", "--plot", "--metric", "reward_mean")
    assert drawn.code == 0
    assert "\x1b" not in drawn.out
    assert "reward_mean" in drawn.out.splitlines()[0]
    assert "* a" in drawn.out
    assert "+ b" in drawn.out
    assert max(map(len, drawn.out.splitlines())) == 80, "no terminal is 80 columns wide"
    table = await cli("job", "metrics", "a", "b")
    assert [line.split()[0] for line in table.out.splitlines()] == ["JOB", *"aaabbb"]


async def test_numbers_that_are_none_are_left_out_of_curves_and_kept_as_data(cli: Cli) -> None:
    add_job(cli.fake)
    for number, value in enumerate((math.nan, math.inf, 1e308)):
        cli.fake.jobs.steps[number].metrics["train/loss"] = value
    drawn = await cli("job", "metrics", "w", "--plot")
    assert drawn.code == 0, drawn.err
    assert "train/loss: nothing to draw" in drawn.err
    assert "left out 3" in drawn.err
    rows = json.loads((await cli("job", "metrics", "w", "-o", "json")).out)
    assert [row["metrics"]["train/loss"] for row in rows] == [None, None, 1e308]
    assert ",nan\n" in (await cli("job", "metrics", "w", "-o", "csv")).out
    assert "nan" in (await cli("job", "metrics", "w")).out


async def test_a_job_without_steps_has_no_numbers(cli: Cli) -> None:
    add_job(cli.fake)
    cli.fake.jobs.steps = []
    for extra in ((), ("--plot",), ("--metric", "reward_mean")):
        done = await cli("job", "metrics", "w", *extra)
        assert (done.code, done.out) == (0, "")
        assert "(none)" in done.err
    assert (await cli("job", "metrics", "w", "-o", "json")).out == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "code"), [(("w", "--plot", "-o", "csv"), 2), (("w", "nope"), 5), ((), 2)]
)
async def test_what_cannot_be_shown(cli: Cli, arguments: tuple[str, ...], code: int) -> None:
    add_job(cli.fake)
    done = await cli("job", "metrics", *arguments)
    assert (done.code, done.out) == (code, "")


async def test_plot_without_its_package_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotext", None)
    done = await cli("job", "metrics", "w", "--plot")
    assert done.code == 5
    assert "--plot needs 'plotext'" in done.err


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
async def test_a_terminal_gets_its_width_and_colours_unless_it_wants_none(
    cli: Cli, variables: dict[str, str], coloured: bool
) -> None:
    add_job(cli.fake)
    cli.fake.jobs.steps = [jobs.Step(number=n, metrics={"reward_mean": n / 9}) for n in range(1, 9)]
    done = await at_terminal(
        *("job", "metrics", "w", "--plot"),
        cwd=cli.folder,
        environment={"TERM": "xterm", **cli.fake.environment, **variables},
        columns=61,
    )
    assert done.code == 0, done.err
    shown = done.out
    assert ("\x1b[" in shown) == coloured
    if not coloured:
        assert max(len(line.rstrip("\r")) for line in shown.split("\n")) == 61


def test_the_records_of_tests_have_what_a_table_shows() -> None:
    from podium.cli.job.metrics import SHOWN

    assert set(SHOWN) - set(job_records.steps(1)[0].metrics) == set()
