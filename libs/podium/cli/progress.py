"""What a running job looks like in a terminal: one line, redrawn, and a sparkline."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

import click

from podium.cli.columns import cut
from podium.cli.output import note, plain_terminal
from podium.cli.views import duration, state
from podium.core.total_steps import total_steps

if TYPE_CHECKING:
    from podium.jobs.v1 import job_service_pb2 as pb

_BARS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 24


def sparkline(values: Sequence[float], width: int = _SPARK_WIDTH) -> str:
    """The last `width` numbers as bars between their least and greatest.

    What is no number is left out.
    """
    # Halves, for the distance of two numbers may be none.
    shown = [value / 2 for value in list(values)[-width:] if math.isfinite(value)]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    if high == low:
        return _BARS[0] * len(shown)
    top = len(_BARS) - 1
    return "".join(_BARS[round((value - low) / (high - low) * top)] for value in shown)


@dataclass
class JobProgress:
    """Collects a job's updates and tells them on stderr.

    On a terminal the last line is the job's state and is redrawn; elsewhere
    every step is a plain line.
    """

    live: bool = field(default_factory=lambda: not plain_terminal())
    rewards: list[float] = field(default_factory=list)
    steps: list[pb.Step] = field(default_factory=list)
    evaluations: list[pb.Evaluation] = field(default_factory=list)
    _drawn: bool = False

    def update(self, update: pb.WatchJobResponse) -> None:
        """Tells one update."""
        from podium.jobs.v1 import job_service_pb2 as pb

        event = update.event
        match event.type:
            case pb.EVENT_TYPE_STEP:
                self.steps.append(update.step)
                self.rewards.append(update.step.metrics.get("reward_mean", 0.0))
                self._line(step_line(update.step, total_steps(update.job.spec)))
            case pb.EVENT_TYPE_EVALUATION:
                self.evaluations.append(update.evaluation)
                self._line(click.style(evaluation_line(update.evaluation), fg="cyan"))
            case pb.EVENT_TYPE_WARNING | pb.EVENT_TYPE_RECOVERY:
                self._line(click.style(event.message, fg="yellow"))
            case _:
                self._line(event.message)
        self._redraw(status_line(update.job, self.rewards))

    def lost(self, delay: float) -> None:
        """Tells that the connection is lost."""
        text = f"connection lost; trying again in {delay:.1f} s, the job goes on"
        if self.live:
            self._redraw(click.style(text, fg="yellow"))
        else:
            note(text)

    def close(self) -> None:
        """Takes the redrawn line away."""
        if self._drawn:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._drawn = False

    def _line(self, text: str) -> None:
        self.close()
        note(text)

    def _redraw(self, text: str) -> None:
        if self.live:
            self.close()
            # One that wraps could not be taken away again.
            click.echo(cut(text, terminal_width() - 1), nl=False, err=True)
            self._drawn = True


def terminal_width(stream: TextIO | None = None) -> int:
    """Columns of the terminal that a stream (stderr) is, as it is now; 80 where it is none."""
    try:
        return os.get_terminal_size((stream or sys.stderr).fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def status_line(job: pb.Job, rewards: Sequence[float]) -> str:
    """`running collect  12/20  ▁▂▅▇  ETA 3m05s`"""
    parts = [click.style(state(job), bold=True), job.phase]
    total = total_steps(job.spec)
    parts.append(f"{job.completed_steps}/{total}" if total else f"step {job.completed_steps}")
    if rewards:
        parts.append(f"reward {sparkline(rewards)} {rewards[-1]:.3f}")
    if job.HasField("remaining_seconds"):
        parts.append(f"ETA {duration(job.remaining_seconds)}")
    return "  ".join(filter(None, parts))


def step_line(step: pb.Step, total: int) -> str:
    """One committed step: its number, reward, success, tokens/s, staleness and seconds.

    `total` is 0 where it is not known.
    """
    metrics = step.metrics
    seconds = step.commit_time.ToNanoseconds() / 1e9 - step.start_time.ToNanoseconds() / 1e9
    of_all = f"{step.number:>{len(str(total))}}/{total}" if total else f"{step.number}"
    parts = [f"step {of_all}"]
    for name, label in (("reward_mean", "reward"), ("success_mean", "success")):
        if name in metrics:
            parts.append(f"{label} {metrics[name]:.3f}")
    if "tokens_per_second" in metrics:
        parts.append(f"{metrics['tokens_per_second']:.0f} tokens/s")
    if "staleness_max" in metrics:
        parts.append(f"staleness {metrics['staleness_max']:.0f}")
    parts.append(duration(max(seconds, 0.0)))
    return "  ".join(parts)


def evaluation_line(evaluation: pb.Evaluation) -> str:
    """One evaluation: its version, mode, and success with its interval."""
    metrics = evaluation.metrics
    head = f"evaluation of version {evaluation.version}, {evaluation.mode}:"
    if "success" in metrics:
        return (
            f"{head} success {metrics['success']:.3f} "
            f"(95 % {evaluation.success_low:.3f} to {evaluation.success_high:.3f}, "
            f"n={evaluation.episodes})"
        )
    return f"{head} reward {metrics.get('reward', 0.0):.3f} (n={evaluation.episodes})"
