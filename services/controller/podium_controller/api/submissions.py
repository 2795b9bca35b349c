"""What a job's client may submit, and the form in which it is stored."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

from podium.core.errors import FailedPreconditionError, InvalidArgumentError, Violation
from podium.core.sft import takes_any_tokens
from podium.core.token_records import token_record_violations
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.domain.identifiers import training_group
from podium_controller.domain.staleness import staleness


def check(groups: Sequence[trajectory_pb2.Group]) -> None:
    """What no field's own rule says of a batch.

    Raises:
        InvalidArgumentError: with every violation.
    """
    found: list[Violation] = []
    if not groups:
        found.append(Violation("item", "got a header alone; groups must follow it"))
    for index, group in enumerate(groups):
        path = f"groups[{index}]"
        if not group.scenario.id:
            found.append(Violation(f"{path}.scenario.id", "is required"))
        if not group.trajectories:
            found.append(Violation(f"{path}.trajectories", "is required; got none"))
        if group.batch_training != groups[0].batch_training:
            text = "differs from that of groups[0]; a batch is one step, which trains in one way"
            found.append(Violation(f"{path}.batch_training", text))
        for number, trajectory in enumerate(group.trajectories):
            found += _violations(trajectory, f"{path}.trajectories[{number}]")
    if found:
        raise InvalidArgumentError(violations=found, reason="INVALID_BATCH")


def digest(groups: Sequence[trajectory_pb2.Group]) -> str:
    """Of a batch as its client sent it."""
    whole = hashlib.sha256()
    for group in groups:
        body = group.SerializeToString(deterministic=True)
        whole.update(len(body).to_bytes(8, "big") + body)
    return whole.hexdigest()


def groups_for(
    job_id: str,
    spec: spec_pb2.JobSpec,
    step: int,
    submitted: Sequence[trajectory_pb2.Group],
) -> list[trajectory_pb2.Group]:
    """The groups as those of a step, as the rollout service would have collected them.

    Raises:
        FailedPreconditionError: STALE_BATCH.
    """
    limit = spec.rollout.max_staleness
    found = []
    for index, given in enumerate(submitted):
        group = trajectory_pb2.Group(
            id=training_group(job_id, step, index),
            job_id=job_id,
            step=step,
            scenario=given.scenario,
            trajectories=given.trajectories,
        )
        if given.HasField("batch_training"):
            group.batch_training.CopyFrom(given.batch_training)
        for attempt, trajectory in enumerate(group.trajectories):
            trajectory.id = f"{group.id}/t{attempt}"
            trajectory.group_id = group.id
            trajectory.scenario_id = group.scenario.id
            trajectory.attempt = attempt
            for field in ("reward", "reward_parts", "explanation", "judgements"):
                trajectory.ClearField(field)
            for told in ("environment", "environment_weight"):
                trajectory.ClearField(told)
        age = 0 if takes_any_tokens(spec, group) else staleness(group, job_id, step)
        if age > limit:
            raise FailedPreconditionError(
                f"groups[{index}] holds tokens of another policy, or of a version of {job_id}"
                f" that is {age} versions older than step {step} starts from; max_staleness is"
                f" {limit}: sample it again",
                reason="STALE_BATCH",
                metadata={"group": str(index), "staleness": str(age)},
            )
        found.append(group)
    return found


def _violations(trajectory: trajectory_pb2.Trajectory, path: str) -> list[Violation]:
    found = []
    reward = trajectory.environment_reward
    if not math.isfinite(reward):
        found.append(Violation(f"{path}.environment_reward", f"got {reward}; must be finite"))
    for name, value in trajectory.metrics.items():
        if not math.isfinite(value):
            found.append(Violation(f'{path}.metrics["{name}"]', f"got {value}; must be finite"))
    for index, history in enumerate(trajectory.histories):
        found += token_record_violations(history.tokens, f"{path}.histories[{index}].tokens")
    return found
