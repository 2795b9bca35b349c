"""Everything that a report tells, read from the controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from podium.jobs.v1 import job_service_pb2 as jobs
from podium.types.v1 import trajectory_pb2

if TYPE_CHECKING:
    from podium.sdk import AsyncClient

SAMPLED = "sampled"


@dataclass(frozen=True)
class ReportData:
    """One job's records.

    `before` and `after` are the sampled episodes of the first and the last
    evaluation, all of them; `shown` says how many pairs of the same scenario
    the page tells in full. `other` is a job to hold this one against, without episodes.
    """

    job: jobs.Job
    steps: Sequence[jobs.Step] = ()
    evaluations: Sequence[jobs.Evaluation] = ()
    events: Sequence[jobs.Event] = ()
    before: Sequence[trajectory_pb2.Trajectory] = ()
    after: Sequence[trajectory_pb2.Trajectory] = ()
    shown: int = 3
    notes: Sequence[str] = field(default_factory=tuple)
    other: ReportData | None = None

    def of_mode(self, mode: str) -> list[jobs.Evaluation]:
        """The evaluations in one mode, by version."""
        chosen = (item for item in self.evaluations if item.mode == mode)
        return sorted(chosen, key=lambda item: item.version)


async def collect(
    client: AsyncClient, job_id: str, *, episodes: int = 3, other: str = ""
) -> ReportData:
    """Reads a job's records, and those of another to hold it against. Raises what `Jobs` raises."""
    job = await client.jobs.get(job_id)
    beside = await _curves(client, other) if other else None
    evaluations = [item async for item in client.jobs.evaluations(job_id)]
    versions = sorted({item.version for item in evaluations if item.mode == SAMPLED})
    before = await sampled_episodes(client, job_id, versions[0]) if versions else []
    after = await sampled_episodes(client, job_id, versions[-1]) if len(versions) > 1 else []
    return ReportData(
        job=job,
        steps=[step async for step in client.jobs.steps(job_id)],
        evaluations=evaluations,
        events=[event async for event in client.jobs.events(job_id)],
        before=before,
        after=after,
        shown=episodes,
        other=beside,
    )


async def _curves(client: AsyncClient, job_id: str) -> ReportData:
    return ReportData(
        job=await client.jobs.get(job_id),
        steps=[step async for step in client.jobs.steps(job_id)],
        evaluations=[item async for item in client.jobs.evaluations(job_id)],
    )


async def sampled_episodes(
    client: AsyncClient, job_id: str, version: int
) -> list[trajectory_pb2.Trajectory]:
    """The episodes of one version's evaluation at the training temperature.

    Of their tokens only the spans are kept, which tell turns from what they are told.
    """
    found = []
    async for item in client.jobs.trajectories(job_id, step=version, evaluation=True):
        if f"-{SAMPLED}/" in item.id:
            for history in item.histories:
                for name in ("token_ids", "logprobs", "teacher_logprobs"):
                    history.tokens.ClearField(name)
            found.append(item)
    return found
