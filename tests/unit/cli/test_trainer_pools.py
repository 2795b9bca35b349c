"""Where a job trains, as the command line and the console tell it."""

from __future__ import annotations

from podium.cli.views import JOB
from podium.jobs.v1 import job_service_pb2 as pb
from podium_console.domain import views


def test_the_trainer_pool_of_a_job_is_told() -> None:
    job = pb.Job(id="j", pool="large", trainer_pool="shared")
    assert dict(JOB.columns)["trainer pool"](job) == "shared"
    assert views.job(job)["trainer_pool"] == "shared"
