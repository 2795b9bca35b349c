"""Tasks as scenarios, and scenarios as what an episode needs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from podium.core.errors import InvalidArgumentError, Violation
from podium.environments.coding.heldout_tasks import HELDOUT
from podium.environments.coding.tasks import EXAMPLES, CodingTask
from podium.environments.coding.train_tasks import TRAIN
from podium.environments.types import Scenario


class Case(BaseModel):
    """Arguments, and what the function returns for them."""

    model_config = ConfigDict(extra="forbid")

    input: list[Any]
    output: Any


class Problem(BaseModel):
    """`Scenario.data`: of the built-in tasks and of one's own."""

    model_config = ConfigDict(extra="forbid")

    function: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    text: str
    """What the agent reads: the signature and what to do."""
    examples: list[Case] = []
    """Shown, and shown again when they fail."""
    hidden: list[Case] = Field(min_length=1)
    """Decide."""
    solution: str = ""
    """One right answer, for judges that compare."""


@lru_cache(maxsize=1)
def tasks() -> dict[str, list[CodingTask]]:
    """The built-in tasks of each split, easy ones first."""
    splits = {"train": TRAIN, "heldout": HELDOUT}
    return {
        split: sorted(tasks.found, key=lambda task: task.level) for split, tasks in splits.items()
    }


def scenario(task: CodingTask, split: str) -> Scenario:
    """A task as a scenario."""
    problem = {
        "function": task.name,
        "text": f"{task.signature}\n{task.text}",
        "examples": task.cases[:EXAMPLES],
        "hidden": task.cases[EXAMPLES:],
        "solution": task.source,
    }
    return Scenario(f"{split}/{task.name}", problem, split)


def read(data: Mapping[str, Any]) -> Problem:
    """A scenario's data.

    Raises:
        InvalidArgumentError: naming each wrong field.
    """
    try:
        return Problem.model_validate(dict(data))
    except ValidationError as error:
        raise InvalidArgumentError(
            violations=[
                Violation(".".join(("scenario.data", *map(str, wrong["loc"]))), wrong["msg"])
                for wrong in error.errors(include_url=False)
            ]
        ) from None
