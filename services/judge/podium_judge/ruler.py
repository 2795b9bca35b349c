"""RULER: a judge model ranks the attempts of a group against each other."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from podium.types.v1 import trajectory_pb2

from podium_judge import metrics, verdict
from podium_judge.judge_model import JudgeModel, RequestRefusedError
from podium_judge.prompt import JudgePrompt, attempt_of, build_prompt
from podium_judge.scores import GroupSkippedError, Score, SkipReason, Unscored, Usage

log = logging.getLogger(__name__)

_REPAIRS = 1
_MAX_ECHO_CHARS = 8000


class RulerScorer:
    """Scores the attempts of one group with one judge model and one rubric."""

    kind = "ruler"

    def __init__(self, model: JudgeModel, rubric: str = "", max_prompt_chars: int = 200_000):
        self._model = model
        self._rubric = rubric
        self._max_prompt_chars = max_prompt_chars

    async def score(
        self,
        group_id: str,
        trajectories: Sequence[trajectory_pb2.Trajectory],
        usage: Usage,
        *,
        alone: bool,
    ) -> list[Score | Unscored]:
        """A score in [0, 1] for each attempt, in order; attempts of the same words score alike.

        One distinct attempt is judged by itself. With `alone`, when no other scorer
        tells attempts apart, two or more of the same words are not worth a call.

        Raises:
            GroupSkippedError: zero variance, or the judge's answers were useless.
            UnavailableError, FailedPreconditionError: see `JudgeModel.ask`.
        """
        words = [attempt_of(trajectory) for trajectory in trajectories]
        distinct = list(dict.fromkeys(attempt for attempt in words if attempt))
        if not distinct:
            return [Unscored("ruler: the attempt has no messages") for _ in trajectories]
        if alone and len(words) > 1 and len(distinct) == 1 and all(words):
            raise GroupSkippedError(
                SkipReason.ZERO_VARIANCE, f"all {len(words)} attempts are word for word the same"
            )
        prompt = build_prompt(
            group_id,
            trajectories,
            distinct,
            rubric=self._rubric,
            max_chars=self._max_prompt_chars,
        )
        verdicts = dict(zip(distinct, await self._judge(prompt, usage), strict=True))
        return [
            verdicts[attempt] if attempt else Unscored("ruler: the attempt has no messages")
            for attempt in words
        ]

    async def _judge(self, prompt: JudgePrompt, usage: Usage) -> list[Score]:
        """Asks, and once more with the complaint when the answer cannot be used."""
        messages = [
            {"role": "system", "content": prompt.system},
            {"role": "user", "content": prompt.user},
        ]
        complaint = ""
        for _ in range(1 + _REPAIRS):
            try:
                reply = await self._model.ask(messages, verdict.schema(prompt.labels), usage)
            except RequestRefusedError as error:
                raise GroupSkippedError(SkipReason.JUDGE_FAILED, str(error)) from error
            try:
                return verdict.parse(reply.text, prompt.labels)
            except verdict.VerdictError as error:
                metrics.PARSE_FAILURES.inc()
                complaint = f"{error}{'; it was cut off' if reply.cut_off else ''}"
                log.warning("the judge's answer is useless", extra={"problem": complaint})
            messages = [
                *messages[:2],
                {"role": "assistant", "content": reply.text[:_MAX_ECHO_CHARS]},
                {
                    "role": "user",
                    "content": f"That answer cannot be used: {complaint}. Answer again with the "
                    "whole JSON object: one entry for each attempt id, each score from 0 to 1.",
                },
            ]
        raise GroupSkippedError(SkipReason.JUDGE_FAILED, f"the judge's answer: {complaint}")
