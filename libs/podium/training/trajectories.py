"""Attempts and groups of attempts, as an agent's own code makes them. ART's names and shapes."""

from __future__ import annotations

import time
import traceback
from collections.abc import Awaitable, Generator, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from podium.core.openai_messages import messages_of, to_openai, tools_of, tools_to_openai
from podium.core.tasks import run_all
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.training import rollouts
from podium.training.histories import Joined, join, merge
from podium.training.progress import FailureBudget, budget
from podium.types.v1 import trajectory_pb2 as pb

Scalar = float | int | str | bool | None


class History(BaseModel):
    """A conversation beside an attempt's main one: a sub-agent's, or what was before compaction."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    messages_and_choices: list[Any] = Field(default_factory=list)
    """As a trajectory's."""
    tools: list[Any] | None = None
    """As a trajectory's."""

    def messages(self) -> list[Any]:
        """The conversation as chat completions write it."""
        return [_message(item) for item in self.messages_and_choices]


class Trajectory(BaseModel):
    """One attempt.

    What trains are the calls that were captured while it ran; `messages_and_choices`
    and `additional_histories` are what its author wants to remember, and to have
    judged, and may be empty.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    messages_and_choices: list[Any] = Field(default_factory=list)
    """Messages of chat completions, as dicts, and choices of their answers, oldest first."""
    tools: list[Any] | None = None
    """What the model was offered, as chat completions write it; None to take it from the calls."""
    additional_histories: list[History] = Field(default_factory=list)
    """Conversations beside the main one."""
    reward: float = 0.0
    """Of the whole attempt, of any scale: what counts is how a group's differ. It must be finite
    when the attempt trains."""
    metrics: dict[str, float | int | bool] = Field(default_factory=dict)
    """Numbers of the attempt by name, whose means are logged; `duration` is in seconds."""
    metadata: dict[str, Scalar] = Field(default_factory=dict)
    """What else is worth finding it by."""
    logs: list[str] = Field(default_factory=list)
    """Lines of `log`, oldest first."""
    start_time: datetime = Field(default_factory=lambda: datetime.now(UTC))
    """When it was made, in UTC."""
    end_time: datetime | None = None
    """When `finish` was called, in UTC; None before."""

    _calls: list[inference_pb.CapturedCall] = PrivateAttr(default_factory=list)

    @property
    def calls(self) -> list[inference_pb.CapturedCall]:
        """The calls of trainable models that were captured while it ran, oldest first."""
        return self._calls

    def attach(self, calls: Iterable[inference_pb.CapturedCall]) -> Trajectory:
        """Adds captured calls; `gather_trajectory_groups` and `model.rollout` do it."""
        self._calls += calls
        return self

    def messages(self) -> list[Any]:
        """The conversation as chat completions write it; of captured calls when none was noted."""
        if self.messages_and_choices or not self._calls:
            return [_message(item) for item in self.messages_and_choices]
        last = self._calls[-1]
        return [to_openai(message) for message in (*last.messages, last.reply)]

    def histories(self) -> list[pb.History]:
        """All that was said: the noted conversations, then captured ones that they do not hold.

        A conversation that another one continues word for word is part of it.
        """
        found: list[pb.History] = []
        for noted in self._noted():
            merge(found, noted)
        for policy in dict.fromkeys(call.generation.policy for call in self._calls):
            for history in self.joined(policy).histories:
                merge(found, pb.History(messages=history.messages, tools=history.tools))
        return found

    def joined(self, policy: str) -> Joined:
        """What was captured as histories of exact tokens under one policy.

        Of several answers to one prompt the notes tell which one the agent went on with.
        """
        return join(self._calls, policy, [each.messages for each in self._noted()])

    def _noted(self) -> list[pb.History]:
        main = History(messages_and_choices=self.messages_and_choices, tools=self.tools)
        return [
            pb.History(
                messages=messages_of({"messages": each.messages()}),
                tools=tools_of({"tools": each.tools}),
            )
            for each in (main, *self.additional_histories)
        ]

    def offered_tools(self) -> list[dict[str, Any]]:
        """The tools that the model was offered, as chat completions write them."""
        if self.tools is not None:
            return self.tools
        return tools_to_openai(self._calls[-1].tools) if self._calls else []

    def log(self, message: str) -> None:
        """Remembers a line."""
        self.logs.append(message)

    def finish(self) -> Trajectory:
        """Notes the end and the duration in seconds."""
        self.end_time = datetime.now(UTC)
        self.metrics["duration"] = (self.end_time - self.start_time).total_seconds()
        return self

    @contextmanager
    def track_duration(self, name: str) -> Iterator[None]:
        """Adds the seconds that the block takes to the metric `{name}_duration`, also if it raises.

        Blocks of one name add up.
        """
        began = time.perf_counter()
        try:
            yield
        finally:
            key = f"{name}_duration"
            self.metrics[key] = self.metrics.get(key, 0.0) + time.perf_counter() - began


class TrajectoryException(BaseModel):
    """What an attempt raised."""

    type: str
    message: str
    traceback: str = ""

    @classmethod
    def of(cls, error: BaseException) -> TrajectoryException:
        """From the exception itself."""
        text = "".join(traceback.format_exception(error))
        return cls(type=type(error).__name__, message=str(error), traceback=text)


class TrajectoryGroup:
    """The attempts of one scenario, made or still to be made.

    Of awaitables, it is awaited, alone or by `gather_trajectory_groups`; each
    is then run as a rollout with a key of its own. Give it coroutines: what
    has been started before cannot be told from its neighbours.
    """

    def __init__(
        self,
        trajectories: Iterable[Trajectory | BaseException | Awaitable[Trajectory]] = (),
        *,
        exceptions: Iterable[BaseException | TrajectoryException] = (),
        metadata: dict[str, Scalar] | None = None,
        metrics: dict[str, float | int | bool] | None = None,
        logs: list[str] | None = None,
    ) -> None:
        """Takes what has been made, and what is still to be made.

        Args:
            trajectories: attempts, exceptions of attempts that failed, and awaitables of attempts.
            exceptions: further ones of attempts that failed.
            metadata, metrics, logs: of the group as a whole, as a trajectory's.
        """
        self.trajectories: list[Trajectory] = []
        """The attempts that ended well, in the order in which they were given."""
        self.exceptions = [
            each if isinstance(each, TrajectoryException) else TrajectoryException.of(each)
            for each in exceptions
        ]
        self.metadata = metadata or {}
        self.metrics = metrics or {}
        self.logs = logs or []
        self._pending: list[Awaitable[Trajectory]] = []
        for item in trajectories:
            if isinstance(item, Trajectory):
                self.trajectories.append(item)
            elif isinstance(item, BaseException):
                self.exceptions.append(TrajectoryException.of(item))
            else:
                self._pending.append(item)

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self.trajectories)

    def __len__(self) -> int:
        return len(self.trajectories)

    def __await__(self) -> Generator[Any, None, TrajectoryGroup]:
        return self._run().__await__()

    @property
    def pending(self) -> int:
        """How many attempts are still to be made."""
        return len(self._pending)

    def discard(self) -> None:
        """Closes the attempts that will not be made."""
        for each in self._take_pending():
            _close(each)

    async def _run(self) -> TrajectoryGroup:
        pending = self._take_pending()
        if not pending:
            return self
        allowed = budget()
        allowed.begin(len(pending))
        try:
            made = await run_all([_attempt(each, allowed) for each in pending])
        finally:
            for each in pending:
                _close(each)
        for result in made:
            if isinstance(result, Trajectory):
                self.trajectories.append(result)
            else:
                self.exceptions.append(result)
        return self

    def _take_pending(self) -> list[Awaitable[Trajectory]]:
        pending, self._pending = self._pending, []
        return pending


async def _attempt(
    work: Awaitable[Trajectory], allowed: FailureBudget
) -> Trajectory | TrajectoryException:
    """Runs one attempt under a key of its own and takes what it called."""
    try:
        with rollouts.entered(rollouts.Rollout()) as rollout:
            trajectory = await work
            if not isinstance(trajectory, Trajectory):
                raise TypeError(
                    f"a rollout returned {type(trajectory).__name__}; it must return a Trajectory"
                )
        for model in rollout.models.values():
            trajectory.attach(await model.take(rollout.key))
    except Exception as error:
        allowed.failed(error)
        return TrajectoryException.of(error)
    allowed.succeeded(trajectory.reward)
    return trajectory


def _close(work: Awaitable[Trajectory]) -> None:
    """Ends what will not be awaited; what has ended stays as it is."""
    close = getattr(work, "close", None) or getattr(work, "cancel", None)
    if close is not None:
        close()


def _message(item: Any) -> dict[str, Any]:
    if isinstance(item, dict):
        return item
    message = getattr(item, "message", item)
    plain: dict[str, Any] = message.model_dump(exclude_none=True)
    return plain
