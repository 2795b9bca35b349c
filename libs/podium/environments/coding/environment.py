"""The environment: a task, a submission a turn, hidden tests at the end."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from podium.environments.agent import Agent
from podium.environments.base import Environment
from podium.environments.coding.agents import Empty, Reference
from podium.environments.coding.grader import CallResult, SubmittedCode, right, shared_sandbox
from podium.environments.coding.scenarios import Case, read, scenario, tasks
from podium.environments.types import (
    Message,
    Observation,
    Scenario,
    Score,
    StepResult,
    assistant,
    system,
    user,
)

INSTRUCTION = "You write Python functions. Answer with one code block and nothing else."
EXAMPLE = (
    user("def triple(n: int) -> int:\nReturn three times n.\ntriple(2) == 6"),
    assistant("```python\ndef triple(n: int) -> int:\n    return 3 * n\n```"),
)

FORMAT_REWARD = 0.1
SHARE_REWARD = 0.4
ALL_REWARD = 0.5
INVALID_REWARD = -0.05

_FENCED = re.compile(r"```[ \t]*\w*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
_SHOWN = 200


class Config(BaseModel):
    """Options of the environment."""

    model_config = ConfigDict(extra="forbid")

    attempts: int = Field(default=3, ge=1, le=20)
    """Turns; the last submission is graded whatever it is."""
    case_seconds: float = Field(default=2.0, gt=0, le=10)
    """What the function may take for one test."""
    max_level: int = Field(default=4, ge=1, le=4)
    """Of the built-in tasks only those up to this level: 1 is one expression."""


class Coding(Environment):
    """Write a function.

    A submission that fails a public example is told so and may be mended; one
    that passes them, or the last, is graded by the hidden tests, which ends
    the episode. Of an episode that was cut, the last submission is graded
    afterwards. The rewards of the steps sum to 1 for a submission that passes
    all: 0.1 when one first defines the function, 0.4 times the share of hidden
    tests passed, 0.5 for all of them; each turn without a submission costs
    0.05. Only passing all brings the sum above 0.5.

    Metrics: `success`, all hidden tests passed; `tests_passed` and
    `tests_total`, hidden ones; `valid_format`, the share of turns with a
    submission; `turns`.
    """

    name: ClassVar[str] = "coding"
    description: ClassVar[str] = "Write a Python function that passes hidden tests."
    splits: ClassVar[tuple[str, ...]] = ("train", "heldout")
    Config: ClassVar[type[BaseModel]] = Config
    baselines: ClassVar[Mapping[str, Callable[[int], Agent]]] = {
        "reference": Reference,
        "empty": Empty,
    }

    def scenarios(self, split: str) -> Sequence[Scenario]:
        found = (task for task in tasks()[split] if task.level <= self.config.max_level)
        return [scenario(task, split) for task in found]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        self._problem = read(scenario.data)
        await shared_sandbox().check()
        self._turns = self._valid = self._passed = 0
        self._code = ""
        self._graded = False
        shown = [f"{self._call(case)} == {case.output!r}" for case in self._problem.examples]
        question = user("\n".join((self._problem.text, *shown)))
        return Observation([system(INSTRUCTION), *EXAMPLE, question], state=self._state())

    async def step(self, action: Message) -> StepResult:
        self._turns += 1
        last = self._turns >= self.config.attempts
        code = _submitted(action.content, self._problem.function)
        if code is None:
            wanted = f"Answer with a code block that defines {self._problem.function}."
            return self._result(wanted, INVALID_REWARD, ended=last)
        reward = FORMAT_REWARD if self._valid == 0 else 0.0
        self._valid += 1
        self._code = code
        async with SubmittedCode(
            code, self._problem.function, self.config.case_seconds
        ) as submission:
            failed = [] if last else await self._failed_examples(submission)
            if failed:
                return self._result("\n".join((*failed, "Try again.")), reward, ended=False)
            reward += await self._grade(submission)
        return self._result("", reward, ended=True)

    async def score(self) -> Score:
        if not self._code or self._graded:
            return Score()
        function, seconds = self._problem.function, self.config.case_seconds
        async with SubmittedCode(self._code, function, seconds) as submission:
            return Score(await self._grade(submission), self._metrics())

    async def _grade(self, submission: SubmittedCode) -> float:
        answers = await submission.answers([case.input for case in self._problem.hidden])
        passed = [right(a, c.output) for a, c in zip(answers, self._problem.hidden, strict=True)]
        self._graded, self._passed = True, sum(passed)
        return SHARE_REWARD * self._passed / len(passed) + ALL_REWARD * all(passed)

    async def _failed_examples(self, submission: SubmittedCode) -> list[str]:
        examples = self._problem.examples
        answers = await submission.answers([case.input for case in examples])
        return [
            f"{self._call(case)} {_outcome_text(answer)}, expected {case.output!r}"
            for case, answer in zip(examples, answers, strict=True)
            if not right(answer, case.output)
        ]

    def _call(self, case: Case) -> str:
        return f"{self._problem.function}({', '.join(map(repr, case.input))})"

    def _state(self) -> dict[str, Any]:
        return {
            "function": self._problem.function,
            "attempts_left": self.config.attempts - self._turns,
        }

    def _result(self, text: str, reward: float, *, ended: bool) -> StepResult:
        return StepResult(
            Observation([] if ended else [user(text)], state=self._state()),
            reward=reward,
            terminated=ended,
            metrics=self._metrics(),
            # What the judge's `code_generation` criterion reads, with the metrics.
            info={"result": self._code, "expected": self._problem.solution},
        )

    def _metrics(self) -> dict[str, float]:
        return {
            "success": float(self._passed == len(self._problem.hidden)),
            "tests_passed": float(self._passed),
            "tests_total": float(len(self._problem.hidden)),
            "valid_format": self._valid / self._turns,
            "turns": float(self._turns),
        }


def _submitted(text: str, function: str) -> str | None:
    """The first code block, else the whole text; None when it does not define the function."""
    fenced = _FENCED.search(text)
    code = fenced[1] if fenced else text
    defined = re.search(
        rf"^(async )?def {re.escape(function)}\b|^{re.escape(function)}\s*=", code, re.M
    )
    return code if defined else None


def _outcome_text(answer: CallResult) -> str:
    if answer.error:
        return f"failed ({answer.error[:_SHOWN]})"
    value = repr(answer.value)
    return f"returned {value if len(value) <= _SHOWN else value[:_SHOWN] + '...'}"
