"""The base class of environments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from podium.core.contract.text import nearest
from podium.core.errors import InvalidArgumentError, Violation
from podium.environments.scenarios.source import ScenarioSource
from podium.environments.types import Message, Observation, Scenario, Score, StepResult

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from podium.environments.agent import Agent


M = TypeVar("M", bound=BaseModel)


class NoConfig(BaseModel):
    """For environments without options."""

    model_config = ConfigDict(extra="forbid")


class Environment(ABC):
    """One episode at a time: an instance is made for each, and closed after it.

    Subclasses set `name`, `description`, `splits`, and `Config` for options
    of their own; forbid extra fields there, so that a misspelt option is
    refused and not ignored. `baselines` name agents that need no model.

    Every environment has one more option, `scenarios`: a file or data set that
    takes the place of its own scenarios.
    """

    name: ClassVar[str]
    description: ClassVar[str] = ""
    splits: ClassVar[tuple[str, ...]] = ("train", "heldout")
    Config: ClassVar[type[BaseModel]] = NoConfig
    baselines: ClassVar[Mapping[str, Callable[[int], Agent]]] = {}
    """Agents to compare a policy with, by name; made from the episode's seed."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        """Checks the options.

        Raises:
            InvalidArgumentError: naming each wrong option.
        """
        options = dict(config or {})
        source = None if "scenarios" in self.Config.model_fields else options.pop("scenarios", None)
        self.config: Any = checked_options(self.Config, options, "environment.config")
        self.scenario_source: ScenarioSource | None = (
            None
            if source is None
            else checked_options(ScenarioSource, source, "environment.config.scenarios")
        )

    def listed(self, split: str) -> Sequence[Scenario]:
        """The scenarios of a split: those that the options name, else the environment's own.

        Raises:
            InvalidArgumentError: a file that the options name, or a row of it, is wrong.
            FailedPreconditionError: it cannot be read here.
        """
        if self.scenario_source is None:
            return self.scenarios(split)
        from podium.environments.scenarios.loader import listed_scenarios

        return listed_scenarios(self.scenario_source, split, self.splits)

    @abstractmethod
    def scenarios(self, split: str) -> Sequence[Scenario]:
        """The scenarios of one of `splits`, always in the same order."""

    @abstractmethod
    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        """Begins the episode. All randomness must come from `seed`."""

    @abstractmethod
    async def step(self, action: Message) -> StepResult:
        """Takes the assistant's message."""

    async def score(self) -> Score:
        """What the episode earned as a whole; optional.

        Called once, after the last step of every episode that did not fail:
        also of one that was cut by its turns, its deadline or the model's
        context length, and then perhaps before any step.
        """
        return Score()

    async def close(self) -> None:  # noqa: B027 - optional
        """Gives back what the episode held."""


def checked_options(kind: type[M], options: Any, field: str) -> M:
    """Options of that kind, which stand at `field`.

    Raises:
        InvalidArgumentError: naming each wrong one.
    """
    try:
        return kind.model_validate(options)
    except ValidationError as error:
        raise InvalidArgumentError(
            violations=[
                Violation(".".join((field, *map(str, wrong["loc"]))), _said(kind, wrong))
                for wrong in error.errors(include_url=False)
            ]
        ) from None


def _said(kind: type[BaseModel], wrong: ErrorDetails) -> str:
    """What is wrong with one option, in the words of job files."""
    if wrong["type"] == "extra_forbidden":
        names = list(kind.model_fields) if len(wrong["loc"]) == 1 else []
        known = f"; known are {', '.join(names)}" if names else ""
        return f"unknown option{nearest(str(wrong['loc'][-1]), names) or known}"
    if wrong["type"] == "missing":
        return "is required"
    return f"got {wrong['input']!r}: {wrong['msg']}"
