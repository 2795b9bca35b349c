"""Somebody who runs `podium` against the doubles, in a folder of their own."""

from __future__ import annotations

import os
from pathlib import Path

from podium.jobs.v1 import job_service_pb2 as jobs
from podium.local.launcher import logs, upfile
from support import job_records
from support.cli import Result, invoke
from support.fake_job_service import watched_job
from support.fake_podium import FakePodium

JOB = """\
base_model: smollm2-135m-instruct
environment: {name: email_search}
training:
  steps: 3
"""


class Cli:
    """Runs commands against the doubles, in a folder of their own."""

    def __init__(self, fake: FakePodium, folder: Path) -> None:
        self.fake = fake
        self.folder = folder
        (folder / "job.yaml").write_text(JOB)

    async def __call__(self, *arguments: str, stdin: str = "", **extra: str) -> Result:
        environment = {**self.fake.environment, **extra}
        return await invoke(*arguments, cwd=self.folder, environment=environment, stdin=stdin)


def add_job(fake: FakePodium, job_id: str = "w", state: str = "SUCCEEDED") -> jobs.Job:
    """A job of three steps, with records of all kinds."""
    job = job_records.job(job_id, 3, 3)
    job.state = jobs.JobState.Value(f"JOB_STATE_{state}")
    fake.jobs.known[job_id] = job
    fake.jobs.updates = watched_job(job)
    fake.jobs.steps = job_records.steps(3)
    fake.jobs.evaluations = job_records.evaluations()
    fake.jobs.trajectories = job_records.episodes(0, 3, 2, 1)[:3]
    return job


def write_up_file(folder: Path, controller: str) -> upfile.Claim:
    """Has a folder look as if `podium up` ran there; release the claim at the end."""
    claim = upfile.Claim(folder)
    entries = {
        name: upfile.ServiceEntry(controller, "h", "m", 1, str(logs.log_path(folder, name)))
        for name in ("controller", "trainer")
    }
    upfile.UpFile(os.getpid(), "0", "m", entries).write(folder)
    return claim
