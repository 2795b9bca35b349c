"""What a program sees of a job that it follows: a bar, or lines on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from podium.jobs.v1 import job_service_pb2 as pb
from podium.training.bars import Bar, shown


class Follower:
    """Tells a job's updates; this one tells nobody."""

    def update(self, update: pb.WatchJobResponse) -> None:
        """Tells an update."""

    def step(self, number: int, total: int, text: str) -> None:
        """Tells of a step."""

    def say(self, text: str) -> None:
        """Tells a line."""


class _BarFollower(Follower):
    def __init__(self, bar: Bar | None) -> None:
        self._bar = bar

    def update(self, update: pb.WatchJobResponse) -> None:
        match update.event.type:
            case pb.EVENT_TYPE_STEP:
                step = update.step
                metrics = step.metrics
                text = f"reward {metrics['reward_mean']:.3f}" if "reward_mean" in metrics else ""
                self.step(step.number, update.job.spec.training.steps, text)
            case pb.EVENT_TYPE_EVALUATION:
                self.say(_evaluated(update.evaluation))
            case _:
                self.say(update.event.message)

    def say(self, text: str) -> None:
        if self._bar is not None:
            self._bar.say(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def step(self, number: int, total: int, text: str) -> None:
        if self._bar is not None:
            self._bar.show(number, total, text)
        else:
            self.say(f"step {number}/{total}  {text}".rstrip())


@contextmanager
def followed(description: str) -> Iterator[Follower]:
    """Tells while the block runs, with a bar where one can be shown."""
    with shown(description) as bar:
        yield _BarFollower(bar)


def _evaluated(evaluation: pb.Evaluation) -> str:
    metrics = evaluation.metrics
    name = "success" if "success" in metrics else "reward"
    return (
        f"evaluation of version {evaluation.version}, {evaluation.mode}: "
        f"{name} {metrics.get(name, 0.0):.3f} (n={evaluation.episodes})"
    )
