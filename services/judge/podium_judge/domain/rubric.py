"""A rubric: judge models grade each attempt alone, criterion by criterion."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import zip_longest

from podium.core import skip_reasons
from podium.core.spending import NOTHING, Amount
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_judge.domain.budget import Allowance, count_opinions
from podium_judge.domain.panel import Panel, PanelVerdict, mean
from podium_judge.domain.records import record_grades
from podium_judge.domain.rubric_prompt import RubricQuestion
from podium_judge.domain.scores import GroupScores, GroupSkippedError, Score, Unscored, Usage
from podium_judge.domain.transcript import SHORTEST, Attempt, attempt_of, tools_of

_SILENT = Unscored("rubric: the attempt has no messages")


class RubricScorer:
    """Scores each attempt of a group by its own merit, with one panel.

    The score is sum w_i s_i / sum w_i over the criteria, in [0, 1].
    """

    kind = "rubric"

    def __init__(
        self,
        panel: Panel,
        criteria: Sequence[spec_pb2.Criterion],
        max_prompt_tokens: int = 65_536,
        allowance: Allowance | None = None,
    ) -> None:
        """`criteria` have their defaults filled in."""
        self._panel = panel
        self._criteria = tuple((each.name, each.description) for each in criteria)
        self._weights = [each.weight for each in criteria]
        self._max_prompt_tokens = max_prompt_tokens
        self._allowance = allowance or Allowance()

    def least(self) -> Amount:
        """See `GroupScorer.least`."""
        (question,) = self._questions([attempt_of(SHORTEST)], [SHORTEST])
        return self._panel.most("", question)

    async def score(
        self,
        group: trajectory_pb2.Group,
        trajectories: Sequence[trajectory_pb2.Trajectory],
        usage: Usage,
        *,
        alone: bool,
    ) -> GroupScores:
        """A score for each attempt; those of the same words are asked about once.

        An attempt on which too few judges gave an answer of use has none.

        Raises:
            GroupSkippedError: a spent budget, or no attempt with a score.
            UnavailableError, FailedPreconditionError: see
                `PanelVerdict.raise_if_unreachable`.
        """
        words = [attempt_of(trajectory) for trajectory in trajectories]
        distinct = sorted({attempt for attempt in words if attempt})
        if not distinct:
            return GroupScores([_SILENT for _ in words], trajectory_pb2.Judgement())
        questions = self._questions(distinct, trajectories)
        verdicts = await self._verdicts(questions, group.id, usage)
        found = {
            attempt: self._score(verdict)
            for attempt, verdict in zip(distinct, verdicts, strict=True)
        }
        judgement = self._judgement(distinct, verdicts, words, trajectories)
        for verdict in verdicts:
            if not verdict.scores:
                # What was answered is known when the group is asked about again.
                verdict.raise_if_unreachable()
        if not any(isinstance(each, Score) for each in found.values()):
            reasons = [each.reason for each in found.values() if isinstance(each, Unscored)]
            text = "; ".join(dict.fromkeys(reasons))
            over = any(each.skip_reason == skip_reasons.JUDGE_BUDGET for each in verdicts)
            reason = skip_reasons.JUDGE_BUDGET if over else skip_reasons.JUDGE_FAILED
            raise GroupSkippedError(reason, text, judgement)
        return GroupScores([found[each] if each else _SILENT for each in words], judgement)

    def _questions(
        self, distinct: Sequence[Attempt], trajectories: Sequence[trajectory_pb2.Trajectory]
    ) -> list[RubricQuestion]:
        tools = tools_of(trajectories)
        return [
            RubricQuestion(attempt, self._criteria, tools, self._max_prompt_tokens)
            for attempt in distinct
        ]

    async def _verdicts(
        self, questions: Sequence[RubricQuestion], group_id: str, usage: Usage
    ) -> list[PanelVerdict]:
        most = NOTHING
        if self._allowance.reserves:
            most = Amount.sum(self._panel.most(group_id, question) for question in questions)
        async with self._allowance.group(most):
            asked = (self._panel.verdict(group_id, question) for question in questions)
            verdicts = await asyncio.gather(*asked)
        for verdict in verdicts:
            count_opinions(verdict.opinions, usage)
        return verdicts

    def _score(self, verdict: PanelVerdict) -> Score | Unscored:
        if not verdict.scores:
            return Unscored(f"rubric: {verdict.failures}")
        names = [name for name, _ in self._criteria]
        graded = list(zip(names, verdict.scores, strict=True))
        lines = [f"{name} {score.value:.2f}: {score.explanation}" for name, score in graded]
        return Score(
            self._mean([score.value for score in verdict.scores]),
            "\n".join(lines),
            tuple((name, score.value) for name, score in graded),
        )

    def _mean(self, scores: Sequence[float]) -> float:
        # A weighted mean of numbers in [0, 1], that rounding must not take out of it.
        total = mean(self._weights)
        weighted = mean([w * s for w, s in zip(self._weights, scores, strict=True)])
        return min(1.0, weighted / total)

    def _judgement(
        self,
        distinct: Sequence[Attempt],
        verdicts: Sequence[PanelVerdict],
        words: Sequence[Attempt],
        trajectories: Sequence[trajectory_pb2.Trajectory],
    ) -> trajectory_pb2.Judgement:
        judgement = trajectory_pb2.Judgement()
        # A fallback is asked about some attempts alone; each judge keeps its place in all.
        for column in zip_longest(*(verdict.opinions for verdict in verdicts)):
            scores = {
                attempt: (self._mean([score.value for score in opinion.scores]), opinion)
                for attempt, opinion in zip(distinct, column, strict=True)
                if opinion and not opinion.failure
            }
            shown = [
                (trajectory.id, *scores[attempt])
                for trajectory, attempt in zip(trajectories, words, strict=True)
                if attempt in scores
            ]
            judgement.opinions.append(record_grades([each for each in column if each], shown))
        return judgement
