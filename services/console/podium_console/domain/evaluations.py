"""What jobs measured of their versions, and what clients measured and stored, as pages show it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from podium.core.contract import to_plain
from podium.core.means import mean_of
from podium.jobs.v1 import evaluation_service_pb2 as stored_pb
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2

from podium_console.domain import views
from podium_console.domain.series import rounded

_SHOWN = ("success", "reward", "win_rate")
"""Of an evaluation's numbers, those that curves and comparisons show."""
_ROW_BYTES = 800


class Evaluations:
    """A job's, by version and mode."""

    def __init__(self) -> None:
        """There are none yet."""
        self._rows: list[dict[str, Any]] = []

    def __len__(self) -> int:
        """How many there are."""
        return len(self._rows)

    @property
    def weight(self) -> int:
        """Bytes that they take, about."""
        return _ROW_BYTES * len(self._rows)

    def extend(self, rows: Iterable[pb.Evaluation]) -> None:
        """Adds those that follow."""
        for each in rows:
            plain = views.evaluation(each)
            plain["metrics"] = {n: v for n, v in plain["metrics"].items() if n in _SHOWN}
            self._rows.append(plain)

    def newest(self, most: int) -> list[dict[str, Any]]:
        """The last so many, oldest first."""
        return self._rows[-most:]


def stored_row(found: stored_pb.StoredEvaluation) -> dict[str, Any]:
    """A stored evaluation in a list."""
    return {
        "id": found.id,
        "name": found.name,
        "project": found.project,
        "agent": found.agent,
        "job": found.policy.job,
        "version": found.policy.version if found.HasField("policy") else None,
        "environment": found.environment.name,
        "split": found.environment.split,
        "scenarios": found.scenarios,
        "counted": found.counted,
        "unanswered": found.unanswered,
        "created": views.seconds(found.create_time),
        "success": _interval(found, "success"),
        "reward": _interval(found, "mean_reward"),
        "win_rate": _interval(found, "win_rate"),
        "reference": found.reference,
    }


def stored(found: stored_pb.StoredEvaluation) -> dict[str, Any]:
    """A stored evaluation with what its numbers depend on."""
    config = to_plain(found.environment.config)
    return stored_row(found) | {
        "attempts": found.attempts,
        "seed": found.seed,
        "config": views.cut(json.dumps(config, ensure_ascii=False)) if config else "",
        "temperature": rounded(found.sampling.temperature) if found.HasField("sampling") else None,
        "max_tokens": found.sampling.max_tokens if found.HasField("sampling") else None,
        "max_turns": found.episode.max_turns if found.HasField("episode") else None,
        "threshold": rounded(found.threshold) if found.HasField("threshold") else None,
        "scorers": [
            {
                "kind": spec_pb2.ScorerKind.Name(each.kind).removeprefix("SCORER_KIND_").lower(),
                "weight": rounded(each.weight) if each.HasField("weight") else 1.0,
            }
            for each in found.reward.scorers
        ],
        "podium_version": found.podium_version,
        "run": found.run,
    }


def scenario(found: stored_pb.ScenarioResult) -> dict[str, Any]:
    """What an agent did on one scenario."""
    return {
        "id": found.scenario_id,
        "succeeded": sum(found.successes),
        "attempts": len(found.successes),
        "reward": _mean(found.rewards),
        "turns": _mean(found.turns),
        "wins": _mean(found.wins),
        "failed": found.failed,
        "unanswered": found.unanswered,
    }


def _interval(found: stored_pb.StoredEvaluation, name: str) -> dict[str, Any] | None:
    if not found.HasField(name):  # type: ignore[arg-type]
        return None
    interval: stored_pb.Interval = getattr(found, name)
    has_ends = interval.HasField("low") and interval.HasField("high")
    return {
        "mean": rounded(interval.mean),
        "low": rounded(interval.low) if has_ends else None,
        "high": rounded(interval.high) if has_ends else None,
    }


def _mean(values: Iterable[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    return rounded(mean_of(known)) if known else None
