"""Which groups the steps of a job have trained, and what is wrong with that."""

from __future__ import annotations

from collections import Counter

from podium.core.contract.rollout import attempts_allowed
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import trajectory_pb2
from podium_controller.domain.identifiers import WAITING_ROOM
from podium_controller.domain.ports import CONSUMED
from podium_controller.domain.staleness import staleness
from podium_controller.domain.trainable_groups import can_teach, first_step
from simulation.scenario import JOB, specification
from simulation.world import World
from support.fakes.database import JobRow


def stored_ids(row: JobRow) -> dict[int, list[str]]:
    """The groups that the database has, in their order, by step."""
    found: dict[int, list[tuple[int, str]]] = {}
    for id_, each in row.groups.items():
        if not each.mode:
            found.setdefault(each.step, []).append((each.position, id_))
    return {step: [id_ for _, id_ in sorted(ids)] for step, ids in found.items()}


def faults_of_orders(world: World) -> list[str]:
    """What no job may have done, in whichever order its groups train."""
    row, found = world.job, []
    steps = [pb.Step.FromString(body) for _, body in row.steps.values()]
    trained = Counter(id_ for each in steps for id_ in each.group_ids)
    found += [f"group {id_} trained {times} times" for id_, times in trained.items() if times > 1]
    stored = stored_ids(row)
    for number, told in world.trainer.told.items():
        if len(told) > 1:
            found.append(f"step {number} was taken with {len(told)} sets of groups: {told}")
    for each in steps:
        if ("", each.number) not in row.deleted_groups:
            found += _faults_of_step(world, each, stored.get(each.number, []))
    waiting = stored.get(WAITING_ROOM)
    if waiting and row.state == pb.JOB_STATE_SUCCEEDED:
        found.append(f"left over: {waiting}")
    return found


def _faults_of_step(world: World, step: pb.Step, stored: list[str]) -> list[str]:
    row, spec, found = world.job, specification(world.shape), []
    rollout, loss = spec.rollout, spec.training.loss
    if stored != list(step.group_ids):
        found.append(
            f"step {step.number} trained {list(step.group_ids)}, the database has {stored}"
        )
        return found
    groups = [trajectory_pb2.Group.FromString(row.groups[id_].body) for id_ in step.group_ids]
    for group in groups:
        age = staleness(group, JOB, step.number)
        if age > rollout.max_staleness:
            found.append(f"step {step.number} trained {group.id}, which was {age} versions old")
        if row.groups[group.id].status != CONSUMED:
            found.append(f"group {group.id} trained and is {row.groups[group.id].status}")
    counts = [not rollout.dynamic_sampling or can_teach(each, loss) for each in groups]
    if first_step(counts, rollout.groups_per_step, attempts_allowed(rollout)) != len(groups):
        found.append(f"step {step.number} trained groups of which {counts} count")
    return found
