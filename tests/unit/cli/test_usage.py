"""`podium usage` and what `podium job get` and the report tell of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from podium.cli.html_report.collect import ReportData
from podium.cli.html_report.page import render
from podium.jobs.v1 import job_service_pb2 as jobs
from support import job_records
from support.cli import Result, invoke
from support.fake_podium import FakePodium, fake_podium

USED = jobs.Usage(
    prompt_tokens=1000,
    sampled_tokens=500,
    trained_tokens=450,
    trainer_seconds=3600,
    trainer_gpu_seconds=14400,
    pool_gpu_seconds=1800,
    judge_prompt_tokens=90,
    judge_completion_tokens=10,
    judge_cost=0.25,
    gpu_cost=11.25,
)


@pytest.fixture
async def fake() -> AsyncIterator[FakePodium]:
    async with fake_podium() as running:
        running.jobs.used = [
            jobs.UsageRow(job_id="b", project="one", usage=USED),
            jobs.UsageRow(job_id="a", project="two", usage=jobs.Usage(sampled_tokens=7)),
        ]
        yield running


async def run(fake: FakePodium, tmp_path: Path, *arguments: str) -> Result:
    return await invoke(*arguments, cwd=tmp_path, environment=fake.environment, stdin="")


async def test_what_projects_have_used_of_their_budgets_is_told_beside(
    fake: FakePodium, tmp_path: Path
) -> None:
    both = jobs.ProjectBudget(
        project="one", max_gpu_hours=100, gpu_hours=4.5, max_judge_cost=20, judge_cost=0.25
    )
    both.start_time.FromDatetime(datetime(2026, 11, 1, tzinfo=UTC))
    ever = jobs.ProjectBudget(
        project="two", max_total_judge_cost=9, total_judge_cost=9.5, total_gpu_hours=3
    )
    fake.jobs.budgets = [both, ever]
    found = await run(fake, tmp_path, "usage", "-o", "json")
    # On stderr: what reads the rows reads rows.
    assert len(json.loads(found.out)) == 2
    line = "budget of one in 2026-11 (UTC): 4.50 of 100 GPU hours, 0.25 of 20 for judges"
    assert line in found.err
    assert "budget of two in all: 9.50 of 9 for judges" in found.err
    assert "budget of two in 2026" not in found.err


async def test_usage_in_every_format(fake: FakePodium, tmp_path: Path) -> None:
    table = await run(fake, tmp_path, "usage")
    head, first, second = table.out.splitlines()
    assert head.split()[:2] == ["JOB", "PROJECT"]
    seen = ["b", "one", "1000", "500", "450", "1h00m", "4.00", "0.50", "100"]
    assert first.split() == [*seen, "11.25", "+", "0.25", "judges"]
    assert second.split()[-1] == "-"
    listed = json.loads((await run(fake, tmp_path, "usage", "-o", "json")).out)
    assert [row["job_id"] for row in listed] == ["b", "a"]
    assert listed[0]["usage"]["gpu_cost"] == 11.25
    assert yaml.safe_load((await run(fake, tmp_path, "usage", "-o", "yaml")).out) == listed
    by_project = await run(fake, tmp_path, "usage", "--by-project", "-o", "name")
    assert by_project.out.split() == ["one", "two"]
    assert fake.jobs.asked_usage[-1].by_project
    assert not fake.jobs.asked_usage[0].by_project


@pytest.mark.parametrize(
    ("since", "ago"), [("24h", timedelta(days=1)), ("7d", timedelta(days=7)), ("2w", timedelta(14))]
)
async def test_usage_since_some_time_ago(
    fake: FakePodium, tmp_path: Path, since: str, ago: timedelta
) -> None:
    done = await run(fake, tmp_path, "usage", "--since", since, "--project", "one")
    assert done.code == 0, done.err
    asked = fake.jobs.asked_usage[0]
    assert asked.project == "one"
    begun = asked.start_time.ToDatetime(UTC)
    assert abs(datetime.now(UTC) - ago - begun) < timedelta(minutes=10)


async def test_usage_since_a_date(fake: FakePodium, tmp_path: Path) -> None:
    done = await run(fake, tmp_path, "usage", "--since", "2026-11-01T12:00:00+02:00")
    assert done.code == 0, done.err
    asked = fake.jobs.asked_usage[0].start_time.ToDatetime(UTC)
    assert asked == datetime(2026, 11, 1, 10, tzinfo=UTC)
    for wrong in ("yesterday", "-3d", "99999999d", "0001-01-01"):
        refused = await run(fake, tmp_path, "usage", "--since", wrong)
        assert (refused.code, refused.out) == (2, ""), wrong


async def test_a_job_shows_what_it_has_used(fake: FakePodium, tmp_path: Path) -> None:
    job = job_records.job("w", 3, 3)
    job.usage.CopyFrom(USED)
    fake.jobs.known["w"] = job
    shown = (await run(fake, tmp_path, "job", "get", "w")).out
    words = " ".join(shown.split())
    assert "used 500 tokens sampled, 450 trained" in words
    assert "4.00 + 0.50 GPU hours" in words
    assert "cost 11.25 + 0.25 judges" in words
    page = render(ReportData(job=job))
    assert "<b>4.50</b><span>GPU hours" in page
    assert "<b>11.25</b><span>cost of the GPUs" in page
    # Without a price there is no cost.
    job.usage.ClearField("gpu_cost")
    assert "cost of the GPUs" not in render(ReportData(job=job))


async def test_a_job_is_resumed_with_what_it_may_use_more(fake: FakePodium, tmp_path: Path) -> None:
    job = job_records.job("w", 1, 3)
    job.state = jobs.JOB_STATE_PAUSED
    job.spec.budget.max_gpu_hours = 1
    job.spec.budget.max_sampled_tokens = 5
    fake.jobs.known["w"] = job
    done = await run(fake, tmp_path, "job", "resume", "w", "--max-gpu-hours", "2.5")
    assert done.code == 0, done.err
    assert (job.spec.budget.max_gpu_hours, job.spec.budget.max_sampled_tokens) == (2.5, 5)
