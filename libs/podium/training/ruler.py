"""RULER for groups that an agent's own code made: ART's call, Podium's judge service."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from podium.core.errors import FailedPreconditionError, PodiumError
from podium.core.openai_messages import messages_of, tools_of
from podium.training.trajectories import Trajectory, TrajectoryGroup
from podium.types.v1 import spec_pb2, trajectory_pb2

if TYPE_CHECKING:
    from podium.sdk.client import AsyncClient

logger = logging.getLogger(__name__)


async def ruler_score_group(
    group: TrajectoryGroup,
    judge_model: str = "",
    *,
    rubric: str = "",
    base_url: str = "",
    swallow_exceptions: bool = False,
    client: AsyncClient | None = None,
) -> TrajectoryGroup | None:
    """A group with RULER's scores, in [0, 1], as rewards; the one given stays as it is.

    An attempt's own reward is kept as the metric `independent_reward`, the
    score as `ruler_score`, the judge's words as a log line.

    Args:
        judge_model: its name at its API; empty for the judge service's own.
        base_url: of that API; empty for the judge service's own.
        rubric: what good means; empty for the default one.
        swallow_exceptions: return None for a group that cannot be scored.
        client: whose judge service is asked; one of its own by default.

    Raises:
        PodiumError: the group cannot be scored.
    """
    if not group.trajectories:
        return group
    try:
        scored = await _score(group, _reward(judge_model, rubric, base_url), client)
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
        result.trajectories.append(_with_score(trajectory, judged))
    return result


async def _score(
    group: TrajectoryGroup, reward: spec_pb2.RewardSpec, client: AsyncClient | None
) -> trajectory_pb2.Group:
    from podium.sdk.client import AsyncClient

    asked = _message(group)
    if client is not None:
        scored = (await client.judge.score(asked, reward)).group
    else:
        async with AsyncClient() as own:
            scored = (await own.judge.score(asked, reward)).group
    if scored.skip_reason:
        words = next((t.explanation for t in scored.trajectories if t.explanation), "")
        raise FailedPreconditionError(
            f"the judge could not score the group: {words or scored.skip_reason}",
            reason=scored.skip_reason.upper(),
        )
    return scored


def _reward(model: str, rubric: str, base_url: str) -> spec_pb2.RewardSpec:
    ruler = spec_pb2.RulerSpec(model=model, rubric=rubric, base_url=base_url)
    scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=ruler)
    return spec_pb2.RewardSpec(scorers=[scorer])


def _message(group: TrajectoryGroup) -> trajectory_pb2.Group:
    group_id = f"ruler-{uuid.uuid4().hex}"
    made = trajectory_pb2.Group(id=group_id, scenario=trajectory_pb2.Scenario(id=group_id))
    for number, trajectory in enumerate(group.trajectories):
        made.trajectories.append(
            trajectory_pb2.Trajectory(
                id=f"{group_id}/t{number}",
                group_id=group_id,
                scenario_id=group_id,
                attempt=number,
                environment_reward=trajectory.reward,
                stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
                histories=[
                    trajectory_pb2.History(
                        messages=messages_of({"messages": trajectory.messages()}),
                        tools=tools_of({"tools": trajectory.offered_tools()}),
                    )
                ],
            )
        )
    return made


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
