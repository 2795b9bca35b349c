"""What of a job's work counts as used."""

from __future__ import annotations

from collections.abc import Iterable

from podium.jobs.v1 import job_service_pb2 as pb
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import trajectory_pb2

from podium_controller.domain.step_metrics import (
    TEACHER_TOKENS,
    sampled_tokens,
    trajectories_of,
)

TOKENS_TRAINED = "train/tokens_trained"
"""Among a step's metrics."""

COUNTED = tuple(
    field.name for field in pb.Usage.DESCRIPTOR.fields if not field.name.startswith("gpu_cost")
)
"""The fields that add up; a price is not kept."""


def of_groups(groups: Iterable[trajectory_pb2.Group]) -> pb.Usage:
    """What collecting these has used."""
    all_sampled, prompts, seconds = 0, 0, 0.0
    for trajectory in trajectories_of(groups):
        sampled = sampled_tokens(trajectory)
        tokens = sum(len(history.tokens.token_ids) for history in trajectory.histories)
        all_sampled += sampled
        # Of a client's own attempts, spans may say more than there are tokens.
        prompts += max(0, tokens - sampled)
        if trajectory.HasField("start_time") and trajectory.HasField("end_time"):
            took = trajectory.end_time.ToNanoseconds() - trajectory.start_time.ToNanoseconds()
            seconds += max(0.0, took / 1e9)
    return pb.Usage(sampled_tokens=all_sampled, prompt_tokens=prompts, episode_seconds=seconds)


def of_step(step: pb.Step) -> pb.Usage:
    """What training a step has used, besides time."""
    return pb.Usage(
        trained_tokens=int(step.metrics.get(TOKENS_TRAINED, 0.0)),
        teacher_tokens=int(step.metrics.get(TEACHER_TOKENS, 0.0)),
    )


def of_judges(used: judge_pb.JudgeUsage) -> pb.Usage:
    """The same in the words of a job's usage."""
    return pb.Usage(
        judge_calls=used.calls,
        judge_prompt_tokens=used.prompt_tokens,
        judge_completion_tokens=used.completion_tokens,
        judge_cost=used.cost,
    )


def add(total: pb.Usage, more: pb.Usage) -> None:
    """Adds up what was counted."""
    for field, amount in more.ListFields():
        if field.name in COUNTED:
            setattr(total, field.name, getattr(total, field.name) + amount)


def price(usage: pb.Usage, gpu_hour: float) -> None:
    """Fills in what the GPUs cost, where a GPU's hour has a price."""
    if gpu_hour:
        seconds = usage.trainer_gpu_seconds + usage.pool_gpu_seconds
        usage.gpu_cost = seconds / 3600 * gpu_hour
