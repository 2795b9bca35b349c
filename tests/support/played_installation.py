"""What the installation has that the documents' commands are run against."""

from __future__ import annotations

from podium.jobs.v1.evaluation_service_pb2 import StoredEvaluation
from podium.sdk import AsyncClient
from support import job_records
from support.evaluation_contract import scenario
from support.fake_job_service import watched_job
from support.fake_podium import FakePodium
from support.wild_episode import wild_episode


def play_installation(fake: FakePodium) -> None:
    """A job `w` with versions, and what a submitted one does."""
    job = job_records.job("w", 3, 3)
    fake.jobs.known["w"] = job
    fake.jobs.updates = watched_job(job)
    fake.jobs.steps = job_records.steps(3)
    for step in fake.jobs.steps:
        step.metrics["judge_tokens"] = 900.0
    fake.jobs.trajectories = [wild_episode(), *job_records.episodes(0, 1, 1, 1)[:2]]
    fake.jobs.created_state = job.state
    for version in (3, 4):
        fake.registry.publish("w", version, {"adapter/a": b"x"})
    fake.registry.versions[-1].aliases[:] = ["best"]


async def store_evaluations(fake: FakePodium) -> None:
    """Two that can be compared, by the names of the pages' placeholders."""
    async with AsyncClient(fake.addresses) as client:
        for name in ("EVALUATION", "w"):
            described = StoredEvaluation(name=name, agent="base")
            described.environment.name = "email_search"
            await client.evaluations.store(described, [scenario("a", True), scenario("b", False)])
