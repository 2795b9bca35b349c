"""A client of SessionService that submits small batches of made-up tokens."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from podium.jobs.v1 import job_service_pb2 as jobs_pb
from podium.jobs.v1 import session_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.controlled import ATTEMPTS, GROUPS, Client, small_job


def client_job(steps: int = 3, **changes: Any) -> spec_pb2.JobSpec:
    """As `small_job`, with its groups from the client."""
    spec = small_job(steps, **{"group_order": None, **changes})
    spec.client.SetInParent()
    spec.ClearField("environment")
    return spec


def batch(
    job_id: str, version: int, *, groups: int = GROUPS, attempts: int = ATTEMPTS
) -> list[trajectory_pb2.Group]:
    """Groups that the version has sampled, with two rewards each."""
    return [
        trajectory_pb2.Group(
            id="new",
            scenario=trajectory_pb2.Scenario(id=f"scenario-{index}"),
            trajectories=[trajectory(job_id, version, float(n % 2)) for n in range(attempts)],
        )
        for index in range(groups)
    ]


def trajectory(job_id: str, version: int, reward: float) -> trajectory_pb2.Trajectory:
    """Three tokens of context, three sampled ones."""
    made = trajectory_pb2.Trajectory(
        id="new",
        group_id="new",
        scenario_id="new",
        environment_reward=reward,
        stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
    )
    tokens = made.histories.add().tokens
    tokens.token_ids.extend([1, 2, 3, 4, 5, 6])
    tokens.logprobs.extend([-0.5, -0.25, -0.125])
    tokens.spans.add(start=3, length=3, policy=job_id, weights_version=version, temperature=1.0)
    return made


async def submit(
    client: Client,
    job_id: str,
    groups: Sequence[trajectory_pb2.Group],
    *,
    request_id: str = "",
    step: int | None = None,
) -> int:
    """SubmitBatch; returns the step."""
    header = pb.BatchHeader(job_id=job_id, request_id=request_id or uuid.uuid4().hex, step=step)

    async def messages() -> AsyncIterator[pb.SubmitBatchRequest]:
        yield pb.SubmitBatchRequest(header=header)
        for group in groups:
            yield pb.SubmitBatchRequest(group=group)

    with rpc_errors("controller"):
        return (await client.sessions.SubmitBatch(messages(), timeout=30)).step


async def finish(client: Client, job_id: str) -> jobs_pb.Job:
    """FinishJob."""
    with rpc_errors("controller"):
        return (await client.sessions.FinishJob(pb.FinishJobRequest(job_id=job_id))).job


async def beat(client: Client, job_id: str, seconds: float) -> jobs_pb.Job:
    """Heartbeat."""
    request = pb.HeartbeatRequest(job_id=job_id, client="a test", seconds=seconds)
    with rpc_errors("controller"):
        return (await client.sessions.Heartbeat(request)).job
