"""Scenarios before a judge service that is away, or that takes some of them."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from podium.core.errors import InvalidArgumentError, UnavailableError, Violation
from podium.judge.v1 import judge_service_pb2 as pb
from podium.kit.rpc import retry
from podium.sdk.evaluation.asking import ask_about
from podium.types.v1 import trajectory_pb2

Group = trajectory_pb2.Group


def groups(*names: str) -> dict[str, Group]:
    return {name: Group(id=name) for name in names}


async def test_one_group_waits_for_a_judge_that_is_away_and_those_after_it_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: Counter[str] = Counter()
    now = [0.0]
    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def ask(group: Group) -> pb.ScoreGroupResponse:
        asked[group.id] += 1
        now[0] += 1.0
        # There for the fourth, and at the sixth's second try.
        if group.id == "d" or (group.id, asked[group.id]) == ("f", 2):
            return pb.ScoreGroupResponse(group=group)
        raise UnavailableError("away")

    found = await ask_about(ask, groups(*"abcdef"), concurrency=1, patience_seconds=2.5)
    assert asked == {"a": 3, "b": 1, "c": 1, "d": 1, "e": 3, "f": 1}
    answered = [name for name, each in found.items() if isinstance(each, pb.ScoreGroupResponse)]
    assert answered == ["d"]


async def test_a_group_that_is_refused_costs_itself_and_a_reward_that_is_refused_all() -> None:
    async def ask(group: Group) -> pb.ScoreGroupResponse:
        if group.id == "odd":
            raise InvalidArgumentError(violations=[Violation("group.trajectories[0].id", "long")])
        return pb.ScoreGroupResponse(group=group)

    found = await ask_about(ask, groups("odd", "even"), concurrency=2, patience_seconds=0)
    assert isinstance(found["odd"], InvalidArgumentError)
    assert isinstance(found["even"], pb.ScoreGroupResponse)
    with pytest.raises(InvalidArgumentError, match="long"):
        await ask_about(ask, groups("odd"), concurrency=2, patience_seconds=0)
    assert await ask_about(ask, {}, concurrency=2, patience_seconds=0) == {}
