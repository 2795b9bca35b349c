"""From what happened in an episode to its trajectories."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from google.protobuf import struct_pb2
from podium.core.outside import clean
from podium.environment.v1 import environment_service_pb2 as environment_pb
from podium.types.v1 import trajectory_pb2 as pb

from podium_rollout.domain import metrics
from podium_rollout.domain.conversation import Conversations, History
from podium_rollout.domain.ports import EnvironmentRaisedError, PlayerFailedError

_TRACEBACK_BYTES = 16 * 1024
_STATE_BYTES = 16 * 1024

_Earned = environment_pb.StepResponse | environment_pb.ScoreResponse


@dataclass(frozen=True)
class TakenStep:
    """A step of the environment, and in which conversation the action was said."""

    conversation: str
    result: environment_pb.StepResponse


@dataclass
class EpisodeProgress:
    """What an episode has come to so far."""

    conversations: Conversations
    turns: dict[str, int] = field(default_factory=dict)
    """By conversation."""
    malformed: dict[str, int] = field(default_factory=dict)
    """Calls that could not be read, by conversation; of those with tools alone."""
    reward: float = 0.0
    side_rewards: dict[str, float] = field(default_factory=dict)
    """Of the sides but the main one, by conversation."""
    steps: list[TakenStep] = field(default_factory=list)
    score: environment_pb.ScoreResponse = field(default_factory=environment_pb.ScoreResponse)
    info: struct_pb2.Struct = field(default_factory=struct_pb2.Struct)
    metrics: dict[str, float] = field(default_factory=dict)
    began: float = 0.0
    """When the episode had its session, in seconds since the epoch."""
    reset: bool = False
    _clock: float = 0.0

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """The episode begins now."""
        self.began, self._clock = time.time(), time.monotonic()

    def seconds(self) -> float:
        """Since it began, whatever the machine's clock was set to meanwhile."""
        return time.monotonic() - self._clock

    def took(self, conversation: str, result: environment_pb.StepResponse) -> None:
        """Takes over a step."""
        self.steps.append(TakenStep(conversation, result))
        self.info = result.info
        self._earn(result)

    def scored(self, score: environment_pb.ScoreResponse) -> None:
        """Takes over what the episode earned as a whole."""
        self.score = score
        self.info.MergeFrom(score.info)
        self._earn(score)

    def _earn(self, earned: _Earned) -> None:
        self.reward += earned.reward
        for side, reward in earned.side_rewards.items():
            self.side_rewards[side] = self.side_rewards.get(side, 0.0) + reward
        self.metrics.update(earned.metrics)


def build(
    head: pb.Trajectory, progress: EpisodeProgress, trained: Callable[[str], bool]
) -> list[pb.Trajectory]:
    """The trajectories of the sides that the policy played, at least one.

    Args:
        head: what they share: ids, stop reason, failure.
        trained: whether the policy speaks in a conversation.
    """
    failed = head.stop_reason == pb.STOP_REASON_FAILED
    sides = [] if failed else sorted(progress.side_rewards)
    found = [_main(head, progress, trained, sides)]
    found += [_side(head, progress, side) for side in sides if trained(side)]
    # Of an episode in which nobody has the main conversation, nothing is told twice.
    return [each for each in found if each.histories] or found[:1]


def _main(
    head: pb.Trajectory, progress: EpisodeProgress, trained: Callable[[str], bool], sides: list[str]
) -> pb.Trajectory:
    trajectory = pb.Trajectory()
    trajectory.CopyFrom(head)
    others = frozenset(sides)
    own = {
        name: value
        for name, value in progress.metrics.items()
        if name.partition("/")[2] not in others or "/" not in name
    }
    _fill(trajectory, progress, lambda name: name not in others, trained, own)
    _tell_steps(trajectory, progress, lambda earned: earned.reward)
    if math.isfinite(progress.reward) and trajectory.stop_reason != pb.STOP_REASON_FAILED:
        trajectory.environment_reward = progress.reward
    return trajectory


def _side(head: pb.Trajectory, progress: EpisodeProgress, side: str) -> pb.Trajectory:
    trajectory = pb.Trajectory()
    trajectory.CopyFrom(head)
    trajectory.id = f"{head.id}/{side}"
    trajectory.side = side
    own = {
        name.removesuffix(f"/{side}"): value
        for name, value in progress.metrics.items()
        if name.endswith(f"/{side}")
    }
    if math.isfinite(progress.side_rewards[side]):
        trajectory.environment_reward = progress.side_rewards[side]
    _fill(trajectory, progress, lambda name: name == side, lambda _: True, own)
    _tell_steps(trajectory, progress, lambda earned: earned.side_rewards.get(side, 0.0))
    return trajectory


def _fill(
    trajectory: pb.Trajectory,
    progress: EpisodeProgress,
    belongs: Callable[[str], bool],
    trained: Callable[[str], bool],
    own: Mapping[str, float],
) -> None:
    splits = 0
    for history in progress.conversations.histories:
        if belongs(history.conversation) and history.request.messages:
            _add(trajectory, history, trained(history.conversation))
            splits += history.is_split
    trajectory.metrics["turns"] = float(_sum(progress.turns, belongs))
    if any(map(belongs, progress.malformed)):
        trajectory.metrics["malformed_calls"] = float(_sum(progress.malformed, belongs))
    trajectory.metrics.update(own)
    if splits:
        trajectory.metrics["history_splits"] = float(splits)
    trajectory.info.CopyFrom(progress.info)
    trajectory.start_time.FromNanoseconds(int(progress.began * 1e9))
    trajectory.end_time.FromNanoseconds(int((progress.began + progress.seconds()) * 1e9))


def _tell_steps(
    trajectory: pb.Trajectory, progress: EpisodeProgress, reward: Callable[[_Earned], float]
) -> None:
    for taken in progress.steps:
        result = taken.result
        added = trajectory.transitions.add(
            conversation=taken.conversation,
            reward=reward(result),
            terminated=result.terminated,
            truncated=result.truncated,
        )
        state = result.observation.state
        if state.fields and state.ByteSize() <= _STATE_BYTES:
            added.state.CopyFrom(state)
    trajectory.score_reward = reward(progress.score)


def _add(trajectory: pb.Trajectory, history: History, trained: bool) -> None:
    added = trajectory.histories.add(
        messages=history.request.messages,
        tools=history.request.tools,
        conversation=history.conversation,
    )
    if not trained:
        return
    record = history.record.build()
    added.tokens.CopyFrom(record)
    metrics.TOKENS.labels("sampled").inc(len(record.logprobs))
    metrics.TOKENS.labels("context").inc(len(record.token_ids) - len(record.logprobs))


def _sum(counts: Mapping[str, int], belongs: Callable[[str], bool]) -> int:
    return sum(count for name, count in counts.items() if belongs(name))


def failure_of(error: BaseException) -> pb.Failure:
    """What an episode's code raised, as the job's owner may see it."""
    if isinstance(error, EnvironmentRaisedError):
        return pb.Failure(
            type=error.kind,
            message=clean(str(error)),
            traceback=f"the environment's log has it under error id {error.error_id}\n",
        )
    if isinstance(error, PlayerFailedError):
        # Where it was raised says nothing of why.
        return pb.Failure(type="PlayerFailed", message=clean(str(error)))
    lines = clean("".join(traceback.format_exception(error)))
    return pb.Failure(
        type=clean(type(error).__name__),
        message=clean(_text_of(error)),
        traceback=lines.encode()[-_TRACEBACK_BYTES:].decode(errors="ignore"),
    )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        # The exception's class is the environment's code too.
        return ""
