"""RULER: judge models rank the attempts of a group against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from podium.core import skip_reasons
from podium.core.spending import NOTHING, Amount
from podium.types.v1 import trajectory_pb2

from podium_judge.domain.budget import Allowance, count_opinions
from podium_judge.domain.panel import Panel, PanelVerdict
from podium_judge.domain.prompt import GroupQuestion
from podium_judge.domain.records import record_comparison
from podium_judge.domain.scores import GroupScores, GroupSkippedError, Unscored, Usage
from podium_judge.domain.transcript import SHORTEST, Attempt, attempt_of, tools_of

_SILENT = Unscored("ruler: the attempt has no messages")


class RulerScorer:
    """Scores the attempts of one group with one panel and one rubric."""

    kind = "ruler"

    def __init__(
        self,
        panel: Panel,
        rubric: str = "",
        max_prompt_tokens: int = 65_536,
        allowance: Allowance | None = None,
        both_orders: bool = False,
    ) -> None:
        """With `both_orders` each judge is asked in an order and in its reverse."""
        self._panel = panel
        self._rubric = rubric
        self._max_prompt_tokens = max_prompt_tokens
        self._allowance = allowance or Allowance()
        self._both_orders = both_orders

    def least(self) -> Amount:
        """See `GroupScorer.least`; of one attempt alone there is but one order."""
        return self._panel.most("", self._question([attempt_of(SHORTEST)], [SHORTEST]))

    async def score(
        self,
        group: trajectory_pb2.Group,
        trajectories: Sequence[trajectory_pb2.Trajectory],
        usage: Usage,
        *,
        alone: bool,
    ) -> GroupScores:
        """A score in [0, 1] for each attempt; attempts of the same words score alike.

        One distinct attempt is judged by itself. With `alone`, when no other scorer
        tells attempts apart, two or more of the same words are not worth a call.

        Raises:
            GroupSkippedError: zero variance, a spent budget, or too few judges whose
                answers could be used.
            UnavailableError, FailedPreconditionError: see
                `PanelVerdict.raise_if_unreachable`.
        """
        words = [attempt_of(trajectory) for trajectory in trajectories]
        distinct = sorted({attempt for attempt in words if attempt})
        if not distinct:
            return GroupScores([_SILENT for _ in words], trajectory_pb2.Judgement())
        if alone and len(words) > 1 and len(distinct) == 1 and all(words):
            raise GroupSkippedError(
                skip_reasons.ZERO_VARIANCE, f"all {len(words)} attempts are word for word the same"
            )
        question = self._question(distinct, trajectories)
        verdict = await self._verdict(question, group.id, usage)
        judgement = _judgement(verdict, distinct, words, trajectories)
        if not verdict.scores:
            verdict.raise_if_unreachable()
            raise GroupSkippedError(verdict.skip_reason, verdict.failures, judgement)
        found = dict(zip(distinct, verdict.scores, strict=True))
        return GroupScores([found[attempt] if attempt else _SILENT for attempt in words], judgement)

    def _question(
        self, distinct: Sequence[Attempt], trajectories: Sequence[trajectory_pb2.Trajectory]
    ) -> GroupQuestion:
        tools = tools_of(trajectories)
        return GroupQuestion(tuple(distinct), tools, self._rubric, self._max_prompt_tokens)

    async def _verdict(self, question: GroupQuestion, group_id: str, usage: Usage) -> PanelVerdict:
        questions = [question]
        if self._both_orders and len(question.attempts) > 1:
            questions.append(replace(question, is_reversed=True))
        reserves = self._allowance.reserves
        most = self._panel.most(group_id, *questions) if reserves else NOTHING
        async with self._allowance.group(most):
            verdict = await self._panel.verdict(group_id, *questions)
        count_opinions(verdict.opinions, usage)
        return verdict


def _judgement(
    verdict: PanelVerdict,
    distinct: Sequence[Attempt],
    words: Sequence[Attempt],
    trajectories: Sequence[trajectory_pb2.Trajectory],
) -> trajectory_pb2.Judgement:
    index = {attempt: number for number, attempt in enumerate(distinct)}
    shown = [
        (trajectory.id, index[attempt])
        for trajectory, attempt in zip(trajectories, words, strict=True)
        if attempt
    ]
    return trajectory_pb2.Judgement(
        opinions=[record_comparison(opinion, shown) for opinion in verdict.opinions],
        agreement=verdict.agreement,
    )
