"""What a job measured of its own versions, as evaluations that are compared like stored ones."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from podium.core.contract.players import with_players
from podium.core.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    Violation,
)
from podium.core.job_environments import environments_of, name_of
from podium.core.outside import count_of
from podium.core.policy_names import resolve_policy
from podium.core.skip_reasons import NO_ENVIRONMENT_ANSWERS
from podium.core.win_rates import alone_and_together
from podium.jobs.v1 import evaluation_service_pb2 as pb
from podium.jobs.v1 import job_service_pb2 as jobs_pb
from podium.sdk.checkpoints import Checkpoints
from podium.sdk.evaluation.attempts import Attempt
from podium.sdk.evaluation.stored import results_of
from podium.sdk.jobs import Jobs
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2

SAMPLED, GREEDY = "sampled", "greedy"
_MODES = (SAMPLED, GREEDY)
_NAME = re.compile(r"(?P<policy>[^/@]+@[^/@]+)(/(?P<mode>[^/]*))?")


class JobServices(Protocol):
    """What is read of an installation's client."""

    jobs: Jobs
    checkpoints: Checkpoints


def is_of_job(name: str) -> bool:
    """Whether it may name what a job measured: `JOB@VERSION`, `JOB@ALIAS`, either with a mode."""
    return _NAME.fullmatch(name) is not None


async def job_evaluation(
    client: JobServices, name: str, environment: str = ""
) -> tuple[pb.StoredEvaluation, list[pb.ScenarioResult]]:
    """What a job measured of one of its versions while it trained, scenario by scenario.

    Args:
        name: `JOB@VERSION` or `JOB@ALIAS`; behind it `/greedy` for the greedy attempts, which are
            otherwise the sampled ones.
        environment: the name of one of the job's several; empty for all, whose scenarios are then
            named `ENVIRONMENT/SCENARIO`.

    Raises:
        InvalidArgumentError: no such name, mode, or environment of the job's.
        NotFoundError: there is no such job or version, or it was not evaluated.
        FailedPreconditionError: EPISODES_DELETED, what it is made of was deleted to make room;
            MODE_UNKNOWN, a controller of before that does not tell greedy attempts from others.
    """
    found = _NAME.fullmatch(name)
    mode = (found["mode"] or SAMPLED) if found else ""
    if found is None or mode not in _MODES:
        text = f"got {name!r}; allowed are JOB@VERSION and JOB@ALIAS, either with /greedy"
        raise InvalidArgumentError(violations=[Violation("evaluation", text)])
    policy = await resolve_policy(found["policy"], client.checkpoints.get)
    job = await client.jobs.get(policy.job)
    version = policy.version
    chosen = _chosen(job.spec, environment)
    listed = [
        each async for each in client.jobs.trajectories(job.id, step=version, evaluation=True)
    ]
    if any(not each.evaluation_mode for each in listed):
        raise FailedPreconditionError(
            "the controller is older than this client and does not tell which attempts are"
            " sampled and which greedy; upgrade it",
            reason="MODE_UNKNOWN",
            metadata={"job_id": job.id, "version": str(version)},
        )
    attempts = [
        each
        for each in listed
        if each.evaluation_mode == mode
        and not each.side
        # Of one environment alone none is named.
        and (not environment or each.environment == environment)
    ]
    for gone in await client.jobs.deleted_trajectories(job.id, step=version, evaluation=True):
        if gone.mode == mode:
            raise FailedPreconditionError(
                f"{gone.groups} scenarios of the {mode} evaluation of {job.id}@{version} were"
                " deleted to make room; its means are in `podium job evaluations`",
                reason="EPISODES_DELETED",
                metadata={"job_id": job.id, "version": str(version)},
            )
    if not attempts:
        raise await _not_evaluated(client.jobs, job.id, version, mode)
    several = len(chosen) > 1
    made = [_attempt(each, several=several) for each in attempts]
    wins = {
        (one.scenario_id, one.attempt): one.metrics["win_rate"]
        for one in made
        if "win_rate" in one.metrics
    }
    header = _header(job, policy, mode, chosen)
    return header, results_of(made, wins=wins if header.HasField("judge") else None)


def _chosen(spec: spec_pb2.JobSpec, environment: str) -> list[spec_pb2.WeightedEnvironment]:
    named = [
        each
        for each in environments_of(spec)
        if not spec.evaluation.environments or name_of(each) in spec.evaluation.environments
    ]
    if not environment:
        return named
    for each in named:
        if name_of(each) == environment:
            return [each]
    names = ", ".join(map(name_of, named)) or "none"
    text = f"got {environment!r}; the job is evaluated on {names}"
    raise InvalidArgumentError(violations=[Violation("environment", text)])


def _attempt(trajectory: trajectory_pb2.Trajectory, *, several: bool) -> Attempt:
    failure, scenario = trajectory.failure, trajectory.scenario_id
    has_reward = trajectory.HasField("reward") or trajectory.HasField("environment_reward")
    reward = trajectory.reward if trajectory.HasField("reward") else trajectory.environment_reward
    made = Attempt(
        scenario_id=f"{trajectory.environment}/{scenario}" if several else scenario,
        attempt=trajectory.attempt,
        reward=trajectory.environment_reward,
        terminated=trajectory.stop_reason == trajectory_pb2.STOP_REASON_TERMINATED,
        turns=count_of(trajectory.metrics.get("turns", 0)),
        metrics=dict(trajectory.metrics),
        failure=f"{failure.type}: {failure.message}" if failure.type else "",
        # As in the job's own numbers: nothing can be said of a scenario without environment.
        unanswered=failure.type == NO_ENVIRONMENT_ANSWERS,
    )
    # Success is by the environment's own reward, whatever scores the attempt.
    return replace(made, reward=reward if has_reward else math.nan, decided=made.succeeded())


def _header(
    job: jobs_pb.Job,
    policy: policy_pb2.PolicyRef,
    mode: str,
    chosen: Sequence[spec_pb2.WeightedEnvironment],
) -> pb.StoredEvaluation:
    spec, evaluation = job.spec, job.spec.evaluation
    called = f"{policy.job}@{policy.version}" + (f"/{mode}" if mode == GREEDY else "")
    made = pb.StoredEvaluation(
        id=called,
        project=spec.project,
        agent=f"{policy.job}@{policy.version}",
        policy=policy,
        seed=spec.seed,
        sampling=spec.rollout.sampling,
        episode=with_players(spec.rollout.episode, evaluation),
        attempts=1 if mode == GREEDY else evaluation.samples,
    )
    if len(chosen) == 1:
        made.environment.CopyFrom(chosen[0].environment)
        # Where it ran says nothing of what it is.
        for field in ("address", "image", "replicas"):
            made.environment.ClearField(field)
    else:
        made.environment.name = " + ".join(map(name_of, chosen))
    made.environment.split = evaluation.split
    if mode == GREEDY:
        made.sampling.temperature = 0.0
    alone, together = alone_and_together(
        spec.reward if evaluation.job_reward else evaluation.reward
    )
    if alone is not None:
        made.reward.CopyFrom(alone)
    if together is not None:
        made.judge.CopyFrom(together)
        made.reference = f"{policy.job}@{spec.fork.version}"
    return made


async def _not_evaluated(jobs: Jobs, job_id: str, version: int, mode: str) -> NotFoundError:
    known = [each async for each in jobs.evaluations(job_id)]
    there = ", ".join(
        f"{each.version}/{each.mode}" if each.mode == GREEDY else str(each.version)
        for each in known
    )
    return NotFoundError(
        f"{job_id} has no {mode} evaluation of version {version}; it has"
        f" {f'those of {there}' if there else 'none'}"
    )
