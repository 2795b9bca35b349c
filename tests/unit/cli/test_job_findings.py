"""What the coach found of a job, where the command line shows the job."""

from __future__ import annotations

from pathlib import Path

from podium.jobs.v1 import job_service_pb2 as jobs
from support.cli_user import Cli, add_job

SAYS = "step 3: groups are alike. To change that, raise rollout.group_size (NO_VARIANCE)"
CUT = "step 3: answers were cut. To change that, raise max_tokens (ANSWERS_CUT)"


def tell(cli: Cli, kind: jobs.EventType.ValueType, message: str) -> None:
    event = jobs.Event(sequence=len(cli.fake.jobs.updates) + 1, type=kind, message=message)
    cli.fake.jobs.updates.append(jobs.WatchJobResponse(event=event))


async def test_a_job_is_shown_with_what_is_wrong_and_not_over(cli: Cli) -> None:
    add_job(cli.fake)
    assert (await cli("job", "get", "w")).err == ""
    tell(cli, jobs.EVENT_TYPE_WARNING, SAYS)
    tell(cli, jobs.EVENT_TYPE_WARNING, CUT)
    tell(cli, jobs.EVENT_TYPE_RECOVERY, "step 9: answers come to their end (ANSWERS_CUT)")
    tell(cli, jobs.EVENT_TYPE_WARNING, "group g is skipped. The judge says: (none)")
    assert (await cli("job", "get", "w")).err == f"warning: {SAYS}\n"
    assert (await cli("job", "get", "w", "-o", "json")).err == ""


async def test_steps_that_trained_nothing_are_listed_with_the_reason(cli: Cli) -> None:
    add_job(cli.fake)
    for step in cli.fake.jobs.steps[:2]:
        step.metrics["train/tokens_trained"] = 0
        step.metrics["groups_skipped/zero_variance"] = 8
    told = (await cli("job", "steps", "w")).err
    assert "warning: trained nothing: step 1, 2 (zero_variance)\n" in told
    assert "podium job get w" in told


async def test_who_follows_a_job_and_who_reads_its_report_are_told(
    cli: Cli, tmp_path: Path
) -> None:
    add_job(cli.fake)
    end = cli.fake.jobs.updates.pop()
    tell(cli, jobs.EVENT_TYPE_WARNING, SAYS)
    end.event.sequence += 1
    cli.fake.jobs.updates[-1].job.CopyFrom(end.job)
    cli.fake.jobs.updates.append(end)
    assert SAYS in (await cli("job", "watch", "w")).err
    page = tmp_path / "page.html"
    done = await cli("job", "report", "w", "--output", str(page))
    assert done.code == 0, done.err
    assert SAYS in page.read_text()
