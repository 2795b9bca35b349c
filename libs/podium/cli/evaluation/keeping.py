"""Has the controller keep what `podium eval` measured."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import podium
from podium.cli.evaluation.task import EvaluationTask, Measured
from podium.cli.exits import CliError, code_of
from podium.cli.output import note

if TYPE_CHECKING:
    from podium.cli.evaluation.judge import JudgeOptions
    from podium.jobs.v1.evaluation_service_pb2 import ScenarioResult, StoredEvaluation
    from podium.sdk.evaluation import Judged

_HINT = "The numbers above are as they were measured; 'podium doctor' looks for the cause."


class Keeper:
    """Of one command, whose evaluations have the same `run`."""

    def __init__(
        self,
        task: EvaluationTask,
        name: str,
        project: str,
        threshold: float | None,
        judging: JudgeOptions | None,
        run: str,
        *,
        must: bool,
    ) -> None:
        """`run` is the command's. Without `must`, what cannot be stored is told and no error."""
        self._task = task
        self._name = name
        self._project = project
        self._threshold = threshold
        self._judging = judging
        self._must = must
        self._run = run
        self.problem: CliError | None = None
        """Why what must be stored is not."""

    def knows_an_installation(self) -> bool:
        """Whether somebody named one, or `podium up` runs one here."""
        from podium.sdk.connection.addresses import THIS_MACHINE

        return self._task.client.addresses.source != THIS_MACHINE.source

    async def keep(
        self, measured: Mapping[str, Measured], verdicts: Mapping[str, Judged]
    ) -> dict[str, StoredEvaluation]:
        """Stores each agent's attempts; what could be, by agent.

        Args:
            verdicts: of agents that a judge compared with the first.
        """
        from podium.core.errors import PodiumError
        from podium.sdk.evaluation import results_of

        kept: dict[str, StoredEvaluation] = {}
        first = next(iter(measured), "")
        for number, (agent, found) in enumerate(measured.items()):
            described, wins = self._described(agent, found), None
            if self._judging is not None and self._judging.alone is not None:
                described.reward.CopyFrom(self._judging.alone)
            if agent in verdicts and self._judging is not None:
                described.judge.CopyFrom(self._judging.together or described.judge)
                described.reference, wins = first, verdicts[agent].wins
            results = results_of(found.attempts, self._threshold, wins)
            try:
                kept[agent] = await self._task.client.evaluations.store(
                    described,
                    results,
                    # A command that goes on stores nothing twice, and may store more.
                    request_id=f"{self._run}-{number}-{_digest(described, results)}",
                    patience_seconds=60.0 if self._must else 5.0,
                )
            except PodiumError as error:
                text = f"{agent} is not stored: {error.message}"
                if not self._must:
                    note(text)
                    break
                self.problem = CliError(text, _HINT, code_of(error))
                break
        return kept

    def _described(self, agent: str, found: Measured) -> StoredEvaluation:
        from podium.jobs.v1 import evaluation_service_pb2 as pb

        task = self._task
        evaluation = pb.StoredEvaluation(
            name=self._name,
            project=self._project,
            agent=agent,
            policy=found.policy,
            environment=task.place(),
            seed=task.seed,
            sampling=task.sampling() if found.samples else None,
            episode=task.episode(),
            attempts=task.attempts,
            threshold=self._threshold,
            podium_version=podium.__version__,
            run=self._run,
        )
        evaluation.environment.split = task.split
        return evaluation


def _digest(evaluation: StoredEvaluation, results: Sequence[ScenarioResult]) -> str:
    found = hashlib.sha256(evaluation.SerializeToString(deterministic=True))
    for result in results:
        found.update(result.SerializeToString(deterministic=True))
    return found.hexdigest()[:32]
