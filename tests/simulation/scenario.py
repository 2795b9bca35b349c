"""What a simulated job is, and what befalls it: both follow from a seed."""

from __future__ import annotations

import functools
import math
import random
from dataclasses import dataclass, replace

from podium.core.contract import apply_defaults, complete_rollout
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import spec_pb2
from support.fakes.peers import BASE_MODEL

JOB = "job"
ATTEMPTS = 2
# Seeds whose jobs end alike.
_ALIKE = 8


@dataclass(frozen=True)
class Shape:
    """A job, and how its world behaves when nothing befalls it."""

    steps: int = 3
    groups: int = 2
    at_once: int = 2
    """Groups that are collected at the same time."""
    staleness: int = 0
    evaluated: bool = False
    keeps: int = 10
    """Versions."""
    failing: bool = False
    """Whether the second group of every step breaks in all attempts."""
    refusing: bool = False
    """Whether one of the scenarios is refused."""
    noisy: bool = False
    """Whether a step that is taken twice comes out otherwise, as on a GPU."""
    pure: bool = True
    """Whether an episode comes out the same each time that it is run."""

    alike: bool = False
    """Whether every attempt gets the same reward, so that nothing is learned."""
    dynamic: bool = False
    """Whether groups that cannot teach are replaced."""
    ready: bool = False
    """Whether steps take the groups that are ready; staleness is above 0 then."""
    flat: float = 0.0
    """The share of groups without variance."""
    slow: float = 0.0
    """The share of groups that take longer than a step."""
    interval: int = 1
    """Every how many steps state is stored."""
    adaptive: bool = False
    """Whether the engines' queue bounds `at_once`; steps take the groups that are ready then."""
    cramped: bool = False
    """Whether no trajectory stays that nobody needs."""

    @property
    def left_alone(self) -> Shape:
        """A job that ends in the same way when nothing befalls it."""
        return replace(self, at_once=2, noisy=False, adaptive=False)


@functools.cache
def specification(shape: Shape) -> spec_pb2.JobSpec:
    """Of a job of that shape."""
    alone = shape.left_alone
    if shape == alone:
        return _specification(shape)
    spec = spec_pb2.JobSpec()
    spec.CopyFrom(specification(alone))
    spec.rollout.max_concurrent_groups = shape.at_once
    spec.rollout.adaptive_concurrency = shape.adaptive
    return spec


def _specification(shape: Shape) -> spec_pb2.JobSpec:
    spec = spec_pb2.JobSpec(base_model=BASE_MODEL, seed=7, recovery_timeout_seconds=600)
    spec.environment.name = "double"
    spec.rollout.group_size = ATTEMPTS
    spec.rollout.groups_per_step = shape.groups
    spec.rollout.max_concurrent_groups = shape.at_once
    spec.rollout.max_staleness = shape.staleness
    order = spec_pb2.GROUP_ORDER_READY if shape.ready else spec_pb2.GROUP_ORDER_FIXED
    spec.rollout.group_order = order
    spec.rollout.dynamic_sampling = shape.dynamic
    spec.rollout.adaptive_concurrency = shape.adaptive
    if shape.staleness:
        spec.rollout.weight_update = spec_pb2.WEIGHT_UPDATE_IN_FLIGHT
    spec.training.steps = shape.steps
    spec.retention.keep_last = shape.keeps
    spec.retention.state_interval = shape.interval
    if shape.evaluated:
        spec.evaluation.SetInParent()
        spec.evaluation.every_steps = 2
        spec.evaluation.samples = 1
        spec.evaluation.greedy = shape.groups == 1
    apply_defaults(spec)
    complete_rollout(spec.rollout)
    return spec


def shape_of(seed: int) -> Shape:
    """Any job that can end in one way alone.

    Neighbouring seeds have jobs that end alike: the one that is left alone, with which each is
    compared, is run once for all of them.
    """
    job = _job(seed // _ALIKE)
    draw = random.Random(f"{seed}/at once")
    at_once = draw.choice((1, 3, 6) if job.ready else (1, 2, 3))
    shape = replace(job, at_once=at_once, noisy=draw.random() < 0.5)
    if job.ready and draw.random() < 0.5:
        return replace(shape, adaptive=True, at_once=job.groups + draw.choice((1, 3, 6)))
    return shape


@functools.cache
def _job(number: int) -> Shape:
    draw = random.Random(f"{number}/job")
    staleness = draw.choice((0, 0, 0, 1, 2))
    groups = draw.choice((1, 2, 2, 3))
    interval = draw.choice((1, 1, 1, 1, 1, 1, 2, 3, 3, 5))
    shape = Shape(
        # Some so long that the oldest state is not the newest one's neighbour.
        steps=draw.choice((1, 2, 3, 3, 4)) + (interval > 1) * interval * draw.randrange(3),
        groups=groups,
        staleness=staleness,
        evaluated=draw.random() < 0.3,
        keeps=draw.choice((1, 2, 10)),
        failing=groups > 1 and draw.random() < 0.2,
        # Ahead of training, which version samples depends on what is quicker.
        pure=staleness == 0 and draw.random() < 0.5,
        interval=interval,
        cramped=draw.random() < 0.25,
    )
    shape = _in_other_orders(shape, number % 4, draw)
    # Of its own, so that what else is drawn stays.
    shape = replace(shape, refusing=random.Random(f"{number}/refusing").random() < 0.2)
    if draw.random() < 0.15:
        # So long that it is told of.
        return replace(shape, alike=True, steps=shape.steps + 3, groups=max(2, groups))
    return shape


def _in_other_orders(shape: Shape, kind: int, draw: random.Random) -> Shape:
    """The same job, or one that replaces groups, or whose steps take what is ready."""
    flat = draw.choice((0.0, 0.3, 0.6))
    if kind == 0:
        return shape
    if kind == 1:
        return replace(shape, dynamic=True, flat=flat)
    return replace(
        shape,
        ready=True,
        staleness=draw.choice((1, 1, 2, 4)),
        steps=shape.steps + draw.choice((0, 0, 3)),
        dynamic=draw.random() < 0.7,
        flat=flat,
        slow=draw.choice((0.0, 0.2, 0.4)),
        pure=False,
    )


def drawn_load(draw: random.Random) -> list[inference_pb.EngineLoad | None]:
    """What a pool may say of its queue, true or not."""

    def pod() -> inference_pb.EngineLoad | None:
        if draw.random() < 0.2:
            return None
        return inference_pb.EngineLoad(
            running=draw.choice((0, 4, 4, -1)),
            waiting=draw.choice((0, 0, 0, 3, 2**31 - 1)),
            held=draw.choice((0, 0, 1)),
            places=draw.choice((0, 4, 8, 8)),
            kv_cache_usage=draw.choice((0.0, 0.5, 0.99, math.nan)),
        )

    return [pod() for _ in range(draw.choice((1, 1, 3)))]
