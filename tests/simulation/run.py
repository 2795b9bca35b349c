"""Runs seeds: a world for each, until its job has ended and all is at rest."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, fields

from simulation.befalls import die, disturb
from simulation.loop import StuckError
from simulation.record import Record, faults_of, record_of
from simulation.scenario import Shape, shape_of
from simulation.world import World, clocks_of

_LONGEST = 3600.0
_MOST_WORK = 200_000


@dataclass
class Outcome:
    """What came of a seed."""

    seed: int
    shape: Shape
    wrong: list[str] = field(default_factory=list)
    """Nothing for a job that ended as if nothing had befallen it."""
    trace: list[str] = field(default_factory=list)
    replays: int = 0
    """How often it went on from a version before the one that it was at."""
    work: int = 0
    controllers: int = 0

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.shape}", *self.trace, *self.wrong]
        return "\n    ".join(lines)


def simulate(seed: int, world_type: type[World] = World, shape: Shape | None = None) -> Outcome:
    """Has things befall a job, and compares its record to that of the same one left alone.

    The job is of `shape`, or of one that follows from the seed.
    """
    shape, draw = shape or shape_of(seed), random.Random(seed)
    world = world_type(shape, seed, disturbed=True)
    return _compare(seed, world, lambda work: disturb(world, draw, work))


def crash(point: int, shape: Shape, world_type: type[World] = World) -> Outcome:
    """Has the controller of a job die after so many pieces of work, and nothing else befall it.

    Until then all is as in the job left alone: its points are `range(1, undisturbed(shape).work)`.
    """
    world, draw = world_type(shape, 0, disturbed=False), random.Random(point)
    return _compare(point, world, lambda _: world.loop.at(point, lambda: die(world, draw)))


def _compare(seed: int, world: World, befall: Callable[[int], None]) -> Outcome:
    expected = undisturbed(world.shape.left_alone)
    outcome = Outcome(seed, world.shape, trace=world.trace)
    with clocks_of(world, seed):
        befall(expected.work)
        try:
            live(world)
        except (StuckError, TimeoutError) as error:
            outcome.wrong.append(f"the job did not end: {error}")
            _stop(world)
        outcome.wrong += _differences(expected, record_of(world)) + faults_of(world)
    told = [event.message for event in world.job.events]
    outcome.replays = sum("has no state; the job goes on from" in each for each in told)
    outcome.work = world.loop.ran
    outcome.controllers = len(world.controllers)
    return outcome


@functools.cache
def undisturbed(shape: Shape) -> Record:
    """The record of a job that nothing befalls."""
    world = World(shape, 0, disturbed=False)
    with clocks_of(world, 0):
        live(world)
        record = record_of(world)
        wrong = faults_of(world)
    if wrong or not record.state == "succeeded":
        raise AssertionError(f"a job that is left alone: {shape}: {record.state}, {wrong}")
    return record


def live(world: World) -> None:
    """Has a controller run the job, until it has ended and all is at rest."""
    loop = world.loop
    world.submit()
    world.start_controller()
    loop.run(world.is_at_rest, until=_LONGEST, most=_MOST_WORK)
    _stop(world)


def _stop(world: World) -> None:
    loop = world.loop
    world.is_over = True
    for controller in world.controllers:
        controller.stop()
    tasks = [task for each in world.controllers for task in each.process.tasks]
    loop.run(lambda: all(map(asyncio.Task.done, tasks)), until=loop.time() + 60, most=_MOST_WORK)


def _differences(expected: Record, found: Record) -> list[str]:
    return [
        f"{each.name}: {getattr(found, each.name)}; left alone {getattr(expected, each.name)}"
        for each in fields(Record)
        if each.compare and getattr(found, each.name) not in (None, getattr(expected, each.name))
    ]
