"""What `podium eval run` found, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from podium.cli.evaluation.tables import of_scenarios
from podium.cli.evaluation.task import Measured
from podium.core.judgement_rows import judgement_to_plain

if TYPE_CHECKING:
    from podium.jobs.v1.evaluation_service_pb2 import StoredEvaluation
    from podium.sdk.evaluation import Attempt, Comparison, Judged, Scored, Summary
    from podium.types.v1 import trajectory_pb2


@dataclass(frozen=True)
class Found:
    """Of one command, by agent."""

    played: Mapping[str, Measured]
    """With the environment's rewards."""
    results: Mapping[str, Sequence[Attempt]]
    """With the rewards that count."""
    summaries: Mapping[str, Summary]
    comparisons: Mapping[str, Comparison]
    verdicts: Mapping[str, Judged]
    scores: Mapping[str, Scored]
    kept: Mapping[str, StoredEvaluation]

    def plain(self, threshold: float | None) -> list[dict[str, Any]]:
        """An object an agent."""
        return [self._agent(agent, threshold) for agent in self.summaries]

    def _agent(self, agent: str, threshold: float | None) -> dict[str, Any]:
        from podium.sdk.evaluation import answered

        summary = self.summaries[agent]
        comparison, verdict = self.comparisons.get(agent), self.verdicts.get(agent)
        score = self.scores.get(agent)
        return {
            "agent": agent,
            "evaluation_id": self.kept[agent].id if agent in self.kept else None,
            **asdict(summary),
            "pass_at": {str(k): value for k, value in summary.pass_at.items()},
            "compared_with_first": asdict(comparison) if comparison else None,
            "judged_against_first": _judged(verdict) if verdict else None,
            "scored": _scored(score) if score else None,
            "by_scenario": of_scenarios(answered(self.results[agent]), threshold),
            "episodes": [
                self._episode(own, attempt, score, threshold)
                for own, attempt in zip(
                    self.played[agent].attempts, self.results[agent], strict=True
                )
            ],
        }

    def _episode(
        self, own: Attempt, attempt: Attempt, score: Scored | None, threshold: float | None
    ) -> dict[str, Any]:
        plain = asdict(attempt) | {"success": attempt.succeeded(threshold)}
        del plain["decided"]
        if score is None:
            return plain
        verdict = score.verdicts.get((attempt.scenario_id, attempt.attempt))
        return plain | {
            "environment_reward": own.reward,
            "reward_parts": dict(verdict.parts) if verdict else {},
            "explanation": verdict.explanation if verdict else "",
        }


def _judged(found: Judged) -> dict[str, Any]:
    return {
        "scenarios": found.scenarios,
        "win_rate": found.win_rate,
        "low": found.low,
        "high": found.high,
        "p_value": found.p_value,
        "first_shown": found.first_shown,
        "unjudged": dict(found.unjudged),
        "judgements": _judgements(found.judgements),
    }


def _scored(found: Scored) -> dict[str, Any]:
    return {
        "scenarios": found.scenarios,
        "unanswered": dict(found.unanswered),
        "without": dict(found.without),
        "judgements": _judgements(found.judgements),
    }


def _judgements(
    found: Mapping[str, Sequence[trajectory_pb2.Judgement]],
) -> dict[str, list[dict[str, Any]]]:
    return {name: [judgement_to_plain(each) for each in made] for name, made in found.items()}
