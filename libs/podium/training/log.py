"""Attempts and metrics on disk: one file of each split and step, and a history of metrics."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from numbers import Real
from pathlib import Path
from statistics import pstdev
from typing import Any

from podium.core.means import mean_of
from podium.training.trajectories import Trajectory, TrajectoryGroup


def summary(groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
    """Means over all attempts; `reward_std_dev` is the mean of the groups' own deviations."""
    attempts = [trajectory for group in groups for trajectory in group.trajectories]
    failed = sum(len(group.exceptions) for group in groups)
    found: dict[str, float] = {}
    if attempts:
        values: defaultdict[str, list[float]] = defaultdict(list)
        for attempt in attempts:
            values["reward"].append(attempt.reward)
            for name, value in attempt.metrics.items():
                if isinstance(value, Real):
                    values[name].append(float(value))
        found = {name: mean_of(numbers) for name, numbers in values.items()}
        found["reward_std_dev"] = mean_of(
            _deviation([each.reward for each in group.trajectories])
            for group in groups
            if group.trajectories
        )
    if attempts or failed:
        found["exception_rate"] = failed / (len(attempts) + failed)
    return found


def _deviation(rewards: Sequence[float]) -> float:
    return pstdev(rewards) if all(map(math.isfinite, rewards)) else math.nan


class Log:
    """A model's folder."""

    def __init__(self, folder: Path) -> None:
        """Made when it is first written to."""
        self._folder = folder

    def write(
        self,
        groups: Sequence[TrajectoryGroup],
        split: str,
        step: int,
        metrics: Mapping[str, float],
    ) -> None:
        """Replaces the split's attempts of a step, and appends the metrics to the history."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if groups:
            target = self._folder / "trajectories" / split / f"{step:04d}.jsonl"
            target.parent.mkdir(parents=True, exist_ok=True)
            draft = target.with_suffix(".draft")
            lines = (json.dumps(_group(group), default=str) + "\n" for group in groups)
            draft.write_text("".join(lines), encoding="utf-8")
            draft.replace(target)
        row = {"step": step, "time": datetime.now(UTC).isoformat(), **metrics}
        with (self._folder / "history.jsonl").open("a", encoding="utf-8") as history:
            history.write(json.dumps(row) + "\n")


def _group(group: TrajectoryGroup) -> dict[str, Any]:
    return {
        "metadata": group.metadata,
        "metrics": group.metrics,
        "logs": group.logs,
        "trajectories": [_trajectory(each) for each in group.trajectories],
        "exceptions": [each.model_dump() for each in group.exceptions],
    }


def _trajectory(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "reward": trajectory.reward,
        "metrics": trajectory.metrics,
        "metadata": trajectory.metadata,
        "logs": trajectory.logs,
        "messages": trajectory.messages(),
        "tools": trajectory.offered_tools(),
        "additional_histories": [
            {"messages": each.messages(), "tools": each.tools}
            for each in trajectory.additional_histories
        ],
        "start_time": trajectory.start_time.isoformat(),
        "end_time": trajectory.end_time.isoformat() if trajectory.end_time else None,
    }
