"""Drawn runs, sick and healthy: attempts as the rollout service makes them, counted as they are."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from statistics import fmean

from podium.core.contract import apply_defaults
from podium.core.skip_reasons import ALL_FAILED, ZERO_VARIANCE
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb
from podium_controller.domain.step_metrics import is_failed, step_metrics

GROUPS = ATTEMPTS = 8

Attempt = Callable[[random.Random, int], pb.Trajectory]
"""Of a step."""
Numbers = Callable[[random.Random, int], Mapping[str, float]]
"""The trainer's, of a step."""
Judge = Callable[[random.Random, pb.Group], None]


def spec(**loss: float) -> spec_pb2.JobSpec:
    """A job with its defaults."""
    made = spec_pb2.JobSpec(base_model="tiny")
    made.environment.name = "task"
    made.training.steps = 60
    for name, value in loss.items():
        setattr(made.training.loss, name, value)
    apply_defaults(made)
    return made


def attempt(
    reward: float,
    *,
    success: float | None = None,
    stop: pb.StopReason.ValueType = pb.STOP_REASON_TERMINATED,
    cut: bool = False,
) -> pb.Trajectory:
    """One that is scored."""
    made = pb.Trajectory(reward=reward, stop_reason=stop)
    if success is not None:
        made.metrics["success"] = success
    finish = pb.FINISH_REASON_LENGTH if cut else pb.FINISH_REASON_STOP
    made.histories.add().tokens.spans.add(length=40, finish_reason=finish)
    return made


def failed() -> pb.Trajectory:
    """One whose environment raised."""
    return pb.Trajectory(stop_reason=pb.STOP_REASON_FAILED)


def trial(draw: random.Random, chance: float) -> pb.Trajectory:
    """One that succeeds or not, and is paid for nothing else."""
    won = float(draw.random() < chance)
    return attempt(won, success=won)


def steady(draw: random.Random, step: int) -> dict[str, float]:
    """What the trainer tells of a healthy step."""
    return {
        "loss": draw.gauss(0, 0.02),
        "entropy": 0.8 * 0.97**step * draw.uniform(0.9, 1.1),
        "grad_norm": draw.lognormvariate(0, 0.35),
        "clip_fraction": draw.uniform(0, 0.004),
        "mismatch_kl": draw.uniform(0, 2e-4),
        "effective_sample_fraction": draw.uniform(0.98, 1),
        "ratio_mean": draw.gauss(1, 0.001),
    }


def run(
    tries: Attempt,
    numbers: Numbers = steady,
    *,
    steps: int = 18,
    seed: int = 0,
    age: int = 0,
    stale: int = 0,
    judge: Judge | None = None,
) -> list[jobs.Step]:
    """Committed steps, with the numbers that the controller writes for such attempts.

    Args:
        age: the staleness of every step.
        stale: how many groups of each were collected again.
        judge: says what it thinks of a group, and may refuse it.
    """
    draw = random.Random(seed)
    made = []
    for number in range(1, steps + 1):
        groups = [_group(draw, number, index, tries, judge) for index in range(GROUPS)]
        metrics = step_metrics(groups, age, {"groups_stale": float(stale)})
        skipped = 0
        for group in groups:
            if reason := group.skip_reason or _skipped(group):
                skipped += 1
                name = f"groups_skipped/{reason}"
                metrics[name] = metrics.get(name, 0.0) + 1
        trained = (GROUPS - skipped) * ATTEMPTS * 40
        metrics["train/tokens_trained"] = float(trained)
        if trained:
            metrics |= {f"train/{name}": value for name, value in numbers(draw, number).items()}
        step = jobs.Step(number=number, version=number, group_ids=[each.id for each in groups])
        for name, value in metrics.items():
            step.metrics[name] = value
        made.append(step)
    return made


def _group(
    draw: random.Random, number: int, index: int, tries: Attempt, judge: Judge | None
) -> pb.Group:
    group = pb.Group(id=f"job/s{number}/g{index}")
    for place in range(ATTEMPTS):
        made = tries(draw, number)
        made.id = f"{group.id}/t{place}"
        group.trajectories.append(made)
    if judge is not None:
        judge(draw, group)
    return group


def _skipped(group: pb.Group) -> str:
    """As the trainer skips groups; see podium_trainer.domain.batch."""
    if all(map(is_failed, group.trajectories)):
        return ALL_FAILED
    rewards = {each.reward for each in group.trajectories if each.HasField("reward")}
    return ZERO_VARIANCE if len(rewards) == 1 else ""


def judged(score: Callable[[random.Random, int], float]) -> Judge:
    """A RULER judge that scores by place, from 0."""

    def judge(draw: random.Random, group: pb.Group) -> None:
        opinion = group.judgements.add(part="ruler").opinions.add(model="judge")
        for place, each in enumerate(group.trajectories):
            each.reward = score(draw, place)
            opinion.attempts.add(trajectory_id=each.id, score=each.reward, place=place + 1)
        scores = [each.score for each in opinion.attempts]
        if len(set(scores)) > 1:
            opinion.position_correlation = _correlation(scores)

    return judge


def refusing(draw: random.Random, group: pb.Group) -> None:
    """A judge whose answers cannot be read, three times in four."""
    if draw.random() < 0.75:
        group.skip_reason = "judge_failed"
        for each in group.trajectories:
            each.ClearField("reward")


def logistic(step: float, middle: float, width: float, top: float) -> float:
    """A learning curve."""
    return top / (1 + math.exp(-(step - middle) / width))


def _correlation(scores: list[float]) -> float:
    places = [float(place) for place in range(len(scores))]
    mean, middle = fmean(scores), fmean(places)
    both = sum((a - mean) * (b - middle) for a, b in zip(scores, places, strict=True))
    deviations = [sum((a - m) ** 2 for a in of) for of, m in ((scores, mean), (places, middle))]
    return both / math.sqrt(deviations[0] * deviations[1])
