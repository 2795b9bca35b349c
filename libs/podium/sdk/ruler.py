"""RULER for groups that an agent's own code made: ART's calls, Podium's judge service."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from podium.core import skip_reasons
from podium.core.errors import FailedPreconditionError, PodiumError
from podium.core.openai_messages import messages_of, tools_of
from podium.training.judges import judge_of
from podium.training.trajectories import Trajectory, TrajectoryException, TrajectoryGroup
from podium.types.v1 import spec_pb2, trajectory_pb2

if TYPE_CHECKING:
    from podium.sdk.client import AsyncClient

logger = logging.getLogger(__name__)

NOT_SCORED = "NotScored"
"""Type of the exception that stands for an attempt without a score."""

Histories = Sequence[trajectory_pb2.History]


class TrajectoryScore(BaseModel):
    """The judge's verdict on one attempt."""

    trajectory_id: str
    """Its place among those given, from "1"."""
    explanation: str
    score: float
    """In [0, 1]."""


async def ruler(
    message_lists: Sequence[Sequence[Any]],
    judge_model: str = "",
    extra_litellm_params: Mapping[str, Any] | None = None,
    rubric: str = "",
    tools: list[Any] | None = None,
    *,
    debug: bool = False,
    base_url: str = "",
    api_key_env: str = "",
    client: AsyncClient | None = None,
) -> list[TrajectoryScore]:
    """Scores conversations, each a list of chat completions' messages, against each other.

    Args:
        judge_model, extra_litellm_params, base_url, api_key_env: see `judge_of`.
        rubric: what good means; empty for the default one.
        tools: what was on offer, as chat completions write them.
        debug: print the scores and the judge's words.
        client: whose judge service is asked; one of its own by default.

    Returns:
        One score a conversation, in their order, joined by id. Conversations of the same
        words score alike.

    Raises:
        InvalidArgumentError: see `judge_of`.
        FailedPreconditionError: NOT_SCORED, a conversation has no messages.
        PodiumError: they cannot be scored.
    """
    reward = _reward(
        judge_of(judge_model, extra_litellm_params, base_url=base_url, api_key_env=api_key_env),
        rubric,
    )
    offered = tools_of({"tools": tools})
    attempts = [
        [trajectory_pb2.History(messages=messages_of({"messages": list(each)}), tools=offered)]
        for each in message_lists
    ]
    if not attempts:
        return []
    group = await _judged(_group(attempts, [None] * len(attempts)), reward, client, debug)
    for number, judged in enumerate(group.trajectories, 1):
        if not judged.HasField("reward"):
            raise FailedPreconditionError(
                f"message_lists[{number - 1}] has no score: {judged.explanation}",
                reason="NOT_SCORED",
            )
    return [
        TrajectoryScore(
            trajectory_id=str(number), explanation=judged.explanation, score=judged.reward
        )
        for number, judged in enumerate(group.trajectories, 1)
    ]


async def ruler_score_group(
    group: TrajectoryGroup,
    judge_model: str = "",
    extra_litellm_params: Mapping[str, Any] | None = None,
    rubric: str = "",
    *,
    tools: list[Any] | None = None,
    swallow_exceptions: bool = False,
    debug: bool = False,
    base_url: str = "",
    api_key_env: str = "",
    client: AsyncClient | None = None,
) -> TrajectoryGroup | None:
    """A group with RULER's scores, in [0, 1], as rewards; the one given stays as it is.

    An attempt is judged by all of its conversations (`Trajectory.histories`). Its own
    reward is kept as the metric `independent_reward`, the score as `ruler_score`, the
    judge's words as a log line. One that has no score, because nothing was said in it, is
    no attempt of the result but an exception, `NotScored` with the reason: it trains as a
    failed attempt does, and no reward is made up for it. Attempts of the same words score
    alike; when all are, one is judged by itself, and a warning says that nothing will be
    learned from the group.

    Args:
        judge_model, extra_litellm_params, base_url, api_key_env: see `judge_of`.
        rubric: what good means; empty for the default one.
        tools: what was on offer; the attempts' own by default.
        swallow_exceptions: return None for a group that cannot be scored.
        debug: print the scores and the judge's words.
        client: whose judge service is asked; one of its own by default.

    Raises:
        InvalidArgumentError: see `judge_of`; also with `swallow_exceptions`.
        PodiumError: the group cannot be scored.
    """
    reward = _reward(
        judge_of(judge_model, extra_litellm_params, base_url=base_url, api_key_env=api_key_env),
        rubric,
    )
    if not group.trajectories:
        return group
    attempts = [_histories(trajectory, tools) for trajectory in group.trajectories]
    own = [trajectory.reward for trajectory in group.trajectories]
    try:
        scored = await _judged(_group(attempts, own), reward, client, debug)
    except PodiumError as error:
        if not swallow_exceptions:
            raise
        logger.warning("a group was not scored: %s", error.message, extra={"reason": error.reason})
        return None
    result = TrajectoryGroup(
        exceptions=group.exceptions,
        metadata=group.metadata,
        metrics=group.metrics,
        logs=list(group.logs),
    )
    for trajectory, judged in zip(group.trajectories, scored.trajectories, strict=True):
        if judged.HasField("reward"):
            result.trajectories.append(_with_score(trajectory, judged))
        else:
            result.exceptions.append(
                TrajectoryException(type=NOT_SCORED, message=judged.explanation)
            )
    return result


async def _judged(
    group: trajectory_pb2.Group,
    reward: spec_pb2.RewardSpec,
    client: AsyncClient | None,
    debug: bool,
) -> trajectory_pb2.Group:
    """The group with rewards, but for attempts that have no words.

    Raises:
        FailedPreconditionError: the judge skipped it; the reason is the skip_reason's.
        PodiumError: the service cannot be asked.
    """
    scored = await _asked(group, reward, client)
    if scored.skip_reason == skip_reasons.ZERO_VARIANCE:
        scored = await _alike(group, reward, client)
    if scored.skip_reason:
        words = next((t.explanation for t in scored.trajectories if t.explanation), "")
        raise FailedPreconditionError(
            f"the judge could not score the group: {words or scored.skip_reason}",
            reason=scored.skip_reason.upper(),
        )
    if debug:
        for number, each in enumerate(scored.trajectories, 1):
            score = f"{each.reward:g}" if each.HasField("reward") else "no score"
            print(f"[RULER] attempt {number}: {score}: {each.explanation}")
    return scored


async def _alike(
    group: trajectory_pb2.Group, reward: spec_pb2.RewardSpec, client: AsyncClient | None
) -> trajectory_pb2.Group:
    """A group of attempts of the same words, with the score that one of them has by itself."""
    logger.warning(
        "all %d attempts of a group are word for word the same: one is judged by itself, all"
        " score alike, and nothing will be learned from them",
        len(group.trajectories),
    )
    one = trajectory_pb2.Group(id=group.id, scenario=group.scenario)
    one.trajectories.append(group.trajectories[0])
    judged = await _asked(one, reward, client)
    found = trajectory_pb2.Group()
    found.CopyFrom(group)
    found.skip_reason = judged.skip_reason
    (only,) = judged.trajectories
    for trajectory in found.trajectories:
        trajectory.explanation = only.explanation
        if only.HasField("reward"):
            trajectory.reward = only.reward
    return found


async def _asked(
    group: trajectory_pb2.Group, reward: spec_pb2.RewardSpec, client: AsyncClient | None
) -> trajectory_pb2.Group:
    from podium.sdk.client import AsyncClient

    if client is not None:
        return (await client.judge.score(group, reward)).group
    async with AsyncClient() as own:
        return (await own.judge.score(group, reward)).group


def _reward(judge: spec_pb2.JudgeModel, rubric: str) -> spec_pb2.RewardSpec:
    scorer = spec_pb2.Scorer(
        kind=spec_pb2.SCORER_KIND_RULER,
        ruler=spec_pb2.RulerSpec(judges=[judge], rubric=rubric),
    )
    return spec_pb2.RewardSpec(scorers=[scorer])


def _group(attempts: Sequence[Histories], own: Sequence[float | None]) -> trajectory_pb2.Group:
    group_id = f"ruler-{uuid.uuid4().hex}"
    made = trajectory_pb2.Group(id=group_id, scenario=trajectory_pb2.Scenario(id=group_id))
    for number, (histories, reward) in enumerate(zip(attempts, own, strict=True)):
        made.trajectories.append(
            trajectory_pb2.Trajectory(
                id=f"{group_id}/t{number}",
                group_id=group_id,
                scenario_id=group_id,
                attempt=number,
                environment_reward=reward,
                stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
                histories=histories,
            )
        )
    return made


def _histories(trajectory: Trajectory, tools: list[Any] | None) -> Histories:
    histories = trajectory.histories()
    if tools is None:
        return histories
    offered = tools_of({"tools": tools})
    return [trajectory_pb2.History(messages=each.messages, tools=offered) for each in histories]


def _with_score(trajectory: Trajectory, judged: trajectory_pb2.Trajectory) -> Trajectory:
    scored = trajectory.model_copy()
    scored.metrics = {
        **trajectory.metrics,
        "ruler_score": judged.reward,
        "independent_reward": trajectory.reward,
    }
    scored.logs = [*trajectory.logs, f"RULER explanation: {judged.explanation}"]
    scored.reward = judged.reward
    return scored
