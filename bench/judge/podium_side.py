"""Podium's judge service, in this process, on the same groups."""

from __future__ import annotations

from typing import Any

import grpc
import httpx
from podium.judge.v1 import judge_service_pb2
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_judge.servicer import JudgeServicer
from podium_judge.settings import Settings

from bench.judge.groups import Kind

_ROLES = {
    "system": trajectory_pb2.ROLE_SYSTEM,
    "user": trajectory_pb2.ROLE_USER,
    "assistant": trajectory_pb2.ROLE_ASSISTANT,
    "tool": trajectory_pb2.ROLE_TOOL,
}


def _history(kind: Kind, attempt: int) -> trajectory_pb2.History:
    history = trajectory_pb2.History()
    for said in kind.attempts[attempt]:
        message = history.messages.add(role=_ROLES[said["role"]], content=said["content"])
        message.tool_call_id = said.get("tool_call_id", "")
        for call in said.get("tool_calls", []):
            function = call["function"]
            message.tool_calls.add(
                id=call["id"], name=function["name"], arguments_json=function["arguments"]
            )
    for tool in kind.tools:
        added = history.tools.add(
            name=tool["function"]["name"], description=tool["function"]["description"]
        )
        added.parameters.update(tool["function"]["parameters"])
    return history


def group_of(kind: Kind, number: int = 0) -> trajectory_pb2.Group:
    """The group as the controller would send it, by another id for each number."""
    group = trajectory_pb2.Group(id=f"bench/{kind.name}/{number}")
    for attempt in range(len(kind.attempts)):
        group.trajectories.add(
            id=f"{group.id}/t{attempt}",
            group_id=group.id,
            scenario_id="s",
            attempt=attempt,
            histories=[_history(kind, attempt)],
        )
    return group


async def judge(kind: Kind, base_url: str, number: int) -> list[float] | None:
    """What Podium makes of a group: one score an attempt, or None when it is skipped."""
    reward = spec_pb2.RewardSpec(scorers=[spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER)])
    request = judge_service_pb2.ScoreGroupRequest(group=group_of(kind, number), reward=reward)
    context: grpc.aio.ServicerContext[Any, Any] = None  # type: ignore[assignment]
    async with httpx.AsyncClient(timeout=None) as client:
        servicer = JudgeServicer(Settings(base_url=base_url, model="judge"), client)
        scored = (await servicer.ScoreGroup(request, context)).group
    if scored.skip_reason == "zero_variance":
        return None
    return [trajectory.reward for trajectory in scored.trajectories]
