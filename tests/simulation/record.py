"""What a job leaves behind, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from podium.core.findings import GROUPS_STALE, finding_of
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import trajectory_pb2
from podium_controller.domain import job_states
from podium_controller.domain.identifiers import evaluation_group, training_group
from podium_controller.domain.ports import CONSUMED
from podium_controller.training.aliases import BEST
from simulation.orders import faults_of_orders, stored_ids
from simulation.scenario import JOB, Shape, specification
from simulation.world import World
from support.fakes.registry import LATEST, Weights
from support.fakes.trainer import fingerprint

_TIMED = ("seconds/", "train/")


@dataclass
class Record:
    """What must not depend on what befell a job."""

    state: str
    steps: list[tuple[int, int, tuple[str, ...]]]
    groups: dict[str, str] | None
    """None where it is chance which groups there are, as it is for the steps' own."""
    evaluations: list[tuple[int, str]]
    told: list[tuple[int, str, int]]
    """Events of steps and evaluations."""
    coached: list[tuple[int, str, int]] | None
    """Events of findings; None where groups without variance are chance."""
    published: list[int]
    kept: list[int]
    latest: int
    held: tuple[str, str, int] | None
    """The job at the trainer, and job and version at the pool; None where that is left open."""
    numbers: list[dict[str, float]] = field(default_factory=list)
    """Of pure jobs: what their steps and evaluations measured, and which version is the best."""
    work: int = field(default=0, compare=False)
    """Pieces of work that it took."""


def record_of(world: World) -> Record:
    """The record of a world at rest."""
    row = world.job
    steps = [pb.Step.FromString(body) for _, body in row.steps.values()]
    shape = world.shape
    by_chance = shape.ready or (shape.dynamic and not shape.pure)
    registry = world.registry
    record = Record(
        state=f"{job_states.name(row.state)} {row.failure_reason} {row.failure_message}".strip(),
        steps=[
            (each.number, each.version, () if by_chance else tuple(each.group_ids))
            for each in steps
        ],
        groups=None if by_chance else _groups(world),
        evaluations=sorted(row.evaluations),
        told=[
            (each.type, each.message, each.step)
            for each in row.events
            if each.type in (pb.EVENT_TYPE_STEP, pb.EVENT_TYPE_EVALUATION)
        ],
        coached=None
        if by_chance or (shape.flat and not shape.pure)
        else [
            (each.type, each.message, each.step)
            for each in row.events
            # How many groups became too old follows from what befell the job.
            if finding_of(each.message) not in ("", GROUPS_STALE)
        ],
        published=sorted(version for _, version in registry.published),
        kept=_kept(world),
        latest=registry.aliases.get((JOB, LATEST), -1),
        held=None
        if world.may_hold
        else (world.trainer.job, world.inference.job, world.inference.version),
        work=world.loop.ran,
    )
    if world.shape.pure:
        record.numbers = [
            {name: value for name, value in each.metrics.items() if not name.startswith(_TIMED)}
            for each in steps
        ]
        for key in sorted(row.evaluations):
            measured = pb.Evaluation.FromString(row.evaluations[key])
            record.numbers.append({"version": key[0], **measured.metrics})
        record.numbers.append({"best": float(registry.aliases.get((JOB, BEST), -1))})
    return record


def _groups(world: World) -> dict[str, str]:
    """Of what was deleted to make room, that it had been consumed: how much is gone is chance."""
    row = world.job
    found = {id_: each.status for id_, each in row.groups.items()}
    for (mode, step), tombstone in row.deleted_groups.items():
        for index in range(tombstone.groups):
            id_ = evaluation_group(JOB, step, mode, index) if mode else ""
            found[id_ or training_group(JOB, step, index)] = CONSUMED
    return dict(sorted(found.items()))


def _kept(world: World) -> list[int]:
    kept = sorted(world.registry.models.get(JOB, ()))
    shape = world.shape
    if shape.interval == 1 and (shape.pure or not shape.evaluated):
        return kept
    # The best one is another for other episodes; and what stopped had its state stored.
    return kept[-world.shape.keeps :]


def faults_of(world: World) -> list[str]:
    """What no job may leave behind, whatever befell it and whichever way it ended."""
    found: list[str] = []
    row, shape = world.job, world.shape
    twice = [version for version, times in Counter(world.registry.published).items() if times > 1]
    found += [f"version {version} was published twice" for version in twice]
    found += _untrue_weights(world) + _lost_state(world)
    for event, before in zip(row.events[1:], row.events, strict=False):
        if event.sequence != before.sequence + 1:
            found.append(f"event {event.sequence} follows {before.sequence}")
    for number in range(1, row.completed_steps + 1):
        if number not in row.steps:
            found.append(f"step {number} is complete and has no row")
    found += faults_of_orders(world)
    asked = world.inference.weight_updates - {specification(shape).rollout.weight_update}
    found += [f"weights were loaded as by {update}" for update in asked]
    groups = _groups(world)
    for id_ in [] if shape.ready else _groups_of(shape, row.completed_steps):
        if id_ not in groups:
            found.append(f"group {id_} is lost")
        elif groups[id_] != CONSUMED:
            found.append(f"group {id_} trained and is {groups[id_]}")
    if row.deleted_groups and not shape.cramped:
        found.append(f"deleted without need: {sorted(row.deleted_groups)}")
    return found


def _groups_of(shape: Shape, steps: int) -> list[str]:
    return [
        training_group(JOB, number, index)
        for number in range(1, steps + 1)
        for index in range(shape.groups)
    ]


def _lost_state(world: World) -> list[str]:
    """Where a job that has ended well cannot be forked from, or could not have gone on from."""
    versions = world.registry.models.get(JOB, {})
    # A call that comes late may delete a version whose state is on its way: the next has one.
    told = [] if world.disturbed else [each.message for each in world.job.events]
    found = [text for text in told if "was deleted before its state was stored" in text]
    if world.job.state == pb.JOB_STATE_SUCCEEDED and versions[max(versions)].state is None:
        found.append(f"the last version, {max(versions)}, has no state")
    return found


def _even(world: World, weights: Weights) -> Weights:
    """The weights; of a trainer that is noisy, what a step that is taken again has alike.

    A version without state is made again of the same groups, and on a GPU not of the same bits.
    """
    if not world.shape.noisy:
        return weights
    return (weights[0], *((step, learned, 0) for step, learned, _ in weights[1:]))  # type: ignore[misc]


def _untrue_weights(world: World) -> list[str]:
    """Versions that were not trained on what the database has, once and in order."""
    rows = world.job.groups
    stored = {
        step: tuple(fingerprint(trajectory_pb2.Group.FromString(rows[id_].body)) for id_ in ids)
        for step, ids in stored_ids(world.job).items()
    }
    found = []
    versions = world.registry.models.get(JOB, {})
    newest = _even(world, versions[max(versions)].weights) if versions else ()
    for number, version in sorted(versions.items()):
        weights = _even(world, version.weights)
        if version.state is not None and _even(world, version.state) != weights:
            found.append(f"version {number} resumes from other weights than it has")
        if weights != newest[: len(weights)]:
            found.append(f"version {number} is not what version {max(versions)} was trained from")
        taken = [step[0] for step in weights[1:]]  # type: ignore[index]
        if taken != list(range(1, number + 1)):
            found.append(f"version {number} has taken the steps {taken}")
            continue
        for step, learned, _ in weights[1:]:  # type: ignore[misc]
            if ("", step) in world.job.deleted_groups:
                continue
            has = stored.get(step, ())
            if learned != has:
                found.append(
                    f"version {number}, step {step}: trained {learned}, the database has {has}"
                )
    return found
