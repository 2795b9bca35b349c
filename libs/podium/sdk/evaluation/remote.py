"""Episodes of a policy, through a rollout service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from podium.core.outside import count_of
from podium.kit.rpc import rpc_errors
from podium.rollout.v1 import rollout_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2_grpc as pb_grpc
from podium.sdk.evaluation.attempts import Attempt
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2

_GRACE_SECONDS = 60.0


async def run_policy(
    stub: pb_grpc.RolloutServiceAsyncStub,
    environment: spec_pb2.EnvironmentSpec,
    scenarios: Sequence[trajectory_pb2.Scenario],
    policy: policy_pb2.PolicyRef,
    sampling: policy_pb2.SamplingParams,
    episode: spec_pb2.EpisodeSpec,
    *,
    pool: str = "",
    attempts: int = 1,
    seed: int = 0,
    concurrency: int = 8,
    done: Callable[[Attempt], None] = lambda attempt: None,
    recorded: Callable[[trajectory_pb2.Trajectory], None] = lambda trajectory: None,
    known: Mapping[tuple[str, int], Attempt] | None = None,
) -> list[Attempt]:
    """Has every scenario attempted `attempts` times by the policy, which must be served.

    Args:
        sampling, episode: with their defaults filled.
        pool: where it is served, by the rollout service's name for it; empty
            for its first one.
        concurrency: scenarios at once.
        done: told of each attempt as it ends.
        recorded: given each attempt's whole record.
        known: by scenario and number, attempts of an earlier call. A scenario of which all are
            there is not attempted again.

    Raises:
        PodiumError: as CollectGroup.
    """
    slots = asyncio.Semaphore(concurrency)
    # Queues, the episode, and its score.
    seconds = episode.session_wait_seconds + episode.timeout_seconds
    seconds += episode.step_timeout_seconds + _GRACE_SECONDS

    async def one(scenario: trajectory_pb2.Scenario) -> list[Attempt]:
        before = [(known or {}).get((scenario.id, number)) for number in range(attempts)]
        if None not in before:
            return [attempt for attempt in before if attempt is not None]
        request = pb.CollectGroupRequest(
            # Seeds derive from it, and the same command is to give the same episodes.
            group_id=f"eval/{scenario.id}",
            job_id=policy.job or "eval",
            environment=environment,
            scenario=scenario,
            attempts=attempts,
            policy=policy,
            sampling=sampling,
            episode=episode,
            seed=seed,
            pool=pool,
        )
        found = []
        async with slots:
            with rpc_errors("rollout"):
                async for response in stub.CollectGroup(request, timeout=seconds):
                    recorded(response.trajectory)
                    found.append(_attempt(response.trajectory))
                    done(found[-1])
        return sorted(found, key=lambda attempt: attempt.attempt)

    running = [asyncio.ensure_future(one(scenario)) for scenario in scenarios]
    try:
        found = await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
    return [attempt for each in found for attempt in each]


def _attempt(trajectory: trajectory_pb2.Trajectory) -> Attempt:
    failure = trajectory.failure
    return Attempt(
        scenario_id=trajectory.scenario_id,
        attempt=trajectory.attempt,
        reward=trajectory.environment_reward,
        terminated=trajectory.stop_reason == trajectory_pb2.STOP_REASON_TERMINATED,
        turns=count_of(trajectory.metrics.get("turns", 0)),
        metrics=dict(trajectory.metrics),
        failure=f"{failure.type}: {failure.message}" if failure.type else "",
    )
