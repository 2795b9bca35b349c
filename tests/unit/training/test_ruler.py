"""ART's RULER call against the real judge servicer over gRPC, its model scripted."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import podium
import pytest
from podium import rewards
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.sdk import Addresses, AsyncClient
from podium.sdk.ruler import ruler, ruler_score_group
from podium.training import (
    History,
    TrainableModel,
    Trajectory,
    TrajectoryGroup,
    gather_trajectory_groups,
)
from podium.training.in_process import InProcessBackend
from podium.training.judges import judge_of
from podium.training.trajectories import TrajectoryException
from support.fake_judge import FakeJudge, fake_judge, says, scores, shown
from support.judging import QUESTION, by_number, judge_service


@pytest.fixture
async def judge() -> AsyncIterator[tuple[FakeJudge, AsyncClient]]:
    with fake_judge() as model:
        async with (
            judge_service(model) as address,
            AsyncClient(Addresses(judge=address)) as client,
        ):
            yield model, client


def attempt(number: int) -> Trajectory:
    return Trajectory(
        messages_and_choices=[
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": f"There are {number}"},
        ],
        reward=float(number),
        metrics={"turns": 1},
    )


async def test_scores_become_rewards_and_nothing_else_is_lost(
    judge: tuple[FakeJudge, AsyncClient],
) -> None:
    model, client = judge
    model.then(scores(by_number))
    group = TrajectoryGroup(
        [attempt(7), attempt(2)],
        exceptions=[TrajectoryException(type="KeyError", message="x")],
        metadata={"scenario_id": "s"},
    )
    scored = await ruler_score_group(group, rubric="More is better.", client=client)
    assert scored is not None
    assert [trajectory.reward for trajectory in scored] == [0.7, 0.2]
    assert [trajectory.reward for trajectory in group] == [7, 2]
    first = scored.trajectories[0]
    assert first.metrics == {"turns": 1, "ruler_score": 0.7, "independent_reward": 7}
    assert first.logs[-1].startswith("RULER explanation: saw ")
    assert scored.metadata == {"scenario_id": "s"}
    assert scored.exceptions[0].type == "KeyError"
    assert "More is better." in str(model.requests[0]["messages"])


async def test_what_cannot_be_scored_is_raised_or_dropped(
    judge: tuple[FakeJudge, AsyncClient],
) -> None:
    model, client = judge
    model.then(says("no idea"))
    group = TrajectoryGroup([attempt(1), attempt(2)])
    with pytest.raises(FailedPreconditionError) as failed:
        await ruler_score_group(group, client=client)
    assert failed.value.reason == "JUDGE_FAILED"

    async def ranked(whole: TrajectoryGroup) -> TrajectoryGroup | None:
        return await ruler_score_group(whole, swallow_exceptions=True, client=client)

    async def made() -> TrajectoryGroup:
        return group

    assert await gather_trajectory_groups([made()], after_each=ranked) == []


async def test_an_empty_group_asks_nobody() -> None:
    empty = TrajectoryGroup()
    assert await ruler_score_group(empty) is empty


async def test_an_attempt_without_a_score_is_an_exception_and_never_a_reward_of_nothing(
    judge: tuple[FakeJudge, AsyncClient],
) -> None:
    model, client = judge
    model.then(scores(by_number))
    group = TrajectoryGroup([attempt(7), Trajectory(reward=5.0), attempt(2)])
    scored = await ruler_score_group(group, client=client)
    assert scored is not None
    assert [trajectory.reward for trajectory in scored] == [0.7, 0.2]
    (missing,) = scored.exceptions
    assert missing.type == "NotScored"
    assert "no messages" in missing.message
    assert not group.exceptions


async def test_attempts_that_are_all_alike_score_alike_with_a_warning(
    judge: tuple[FakeJudge, AsyncClient], caplog: pytest.LogCaptureFixture
) -> None:
    model, client = judge
    model.then(scores(by_number))
    with caplog.at_level(logging.WARNING):
        scored = await ruler_score_group(TrajectoryGroup([attempt(4)] * 3), client=client)
    assert scored is not None
    assert [trajectory.reward for trajectory in scored] == [0.4] * 3
    assert [trajectory.metrics["ruler_score"] for trajectory in scored] == [0.4] * 3
    assert len(model.requests) == 1
    assert len(shown(model.requests[0])) == 1
    assert "all 3 attempts of a group are word for word the same" in caplog.text


async def test_alike_attempts_that_a_judge_cannot_score_are_no_group_of_equals(
    judge: tuple[FakeJudge, AsyncClient],
) -> None:
    model, client = judge
    model.then(says("no idea"))
    with pytest.raises(FailedPreconditionError) as failed:
        await ruler_score_group(TrajectoryGroup([attempt(4)] * 3), client=client)
    assert failed.value.reason == "JUDGE_FAILED"


async def test_noted_additional_histories_are_judged_too(
    judge: tuple[FakeJudge, AsyncClient],
) -> None:
    model, client = judge
    model.then(scores(lambda text: 0.5))
    said = [{"role": "user", "content": "find it"}, {"role": "assistant", "content": "found 12"}]
    one = attempt(7)
    one.additional_histories = [History(messages_and_choices=said)]
    await ruler_score_group(TrajectoryGroup([one, attempt(2)]), client=client)
    whole, alone = sorted(shown(model.requests[0]).values(), key=len, reverse=True)
    assert "[conversation 2 of 2]" in whole
    assert "found 12" in whole
    assert "conversation" not in alone


async def test_captured_conversations_of_sub_agents_are_all_judged(
    judge: tuple[FakeJudge, AsyncClient],
) -> None:
    scripted, client = judge
    scripted.then(scores(lambda text: 0.5))

    def answer(messages: list[dict[str, Any]], step: int) -> str:
        return f"heard {messages[-1]['content']}"

    async def rollout(model: TrainableModel, number: int) -> Trajectory:
        """A sub-agent, then a main conversation of two turns; nothing is noted."""
        async with model.openai_client() as openai:

            async def say(*messages: str) -> None:
                roles = ["user", "assistant"] * len(messages)
                asked: list[Any] = [
                    {"role": role, "content": text}
                    for role, text in zip(roles, messages, strict=False)
                ]
                await openai.chat.completions.create(model=model.name, messages=asked)

            await say(f"sub-task {number}")
            await say(f"task {number}")
            await say(f"task {number}", f"heard task {number}", "and then?")
        return Trajectory()

    with InProcessBackend(answer) as backend:
        model = TrainableModel("agent", base_model="none")
        await model.register(backend)
        group = await TrajectoryGroup(rollout(model, number) for number in range(2))
    assert len(group.trajectories[0].histories()) == 2
    scored = await ruler_score_group(group, client=client)
    assert scored is not None
    assert [len(trajectory.calls) for trajectory in scored] == [3, 3]
    for text in shown(scripted.requests[0]).values():
        assert "[conversation 1 of 2]" in text
        assert "heard sub-task" in text
        assert text.count("heard task") == 1
        assert "heard and then?" in text


def test_what_was_noted_of_a_captured_conversation_is_not_told_twice() -> None:
    trajectory = attempt(3)
    trajectory.additional_histories = [
        History(messages_and_choices=attempt(3).messages_and_choices[:1]),
        History(messages_and_choices=[{"role": "user", "content": "other"}]),
    ]
    assert [len(each.messages) for each in trajectory.histories()] == [2, 1]


def test_a_field_that_a_trajectory_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="rewards"):
        Trajectory(rewards=1.0)  # type: ignore[call-arg]


def conversation(number: int) -> list[dict[str, Any]]:
    return attempt(number).messages()


async def test_conversations_are_scored_as_by_arts_function(
    judge: tuple[FakeJudge, AsyncClient], capsys: pytest.CaptureFixture[str]
) -> None:
    model, client = judge
    # The judge answers in another order; ART joins by place, here it is by id.
    model.then(scores(by_number, edit=lambda entries: entries[::-1]))
    lists = [conversation(number) for number in (7, 2, 5)]
    tools = [{"type": "function", "function": {"name": "count_them", "parameters": {}}}]
    found = await ruler(lists, "", {"temperature": 0.5}, "Count.", tools, debug=True, client=client)
    assert [(each.trajectory_id, each.score) for each in found] == [
        ("1", 0.7),
        ("2", 0.2),
        ("3", 0.5),
    ]
    (request,) = model.requests
    assert request["temperature"] == 0.5
    assert "Count." in json.dumps(request)
    assert "count_them" in json.dumps(request)
    assert "[RULER] attempt 1: 0.7: saw" in capsys.readouterr().out


async def test_conversations_that_cannot_all_be_scored_are_an_error(
    judge: tuple[FakeJudge, AsyncClient],
) -> None:
    model, client = judge
    model.then(scores(by_number))
    assert await ruler([], client=client) == []
    with pytest.raises(FailedPreconditionError, match=r"message_lists\[1\] has no score") as failed:
        await ruler([conversation(1), []], client=client)
    assert failed.value.reason == "NOT_SCORED"


async def test_arts_parameters_reach_the_judge_that_they_name(
    judge: tuple[FakeJudge, AsyncClient],
) -> None:
    _, client = judge
    with fake_judge() as elsewhere:
        elsewhere.then(scores(by_number))
        extra = {
            "api_base": elsewhere.base_url,
            "max_tokens": 300,
            "temperature": 0.25,
            "reasoning_effort": "low",
        }
        group = TrajectoryGroup([attempt(7), attempt(2)])
        scored = await ruler_score_group(
            group, "hosted_vllm/org/judge", extra, "Rank them.", client=client
        )
        assert scored is not None
        (request,) = elsewhere.requests
        assert request["model"] == "org/judge"
        assert request["max_completion_tokens"] == 300
        assert request["temperature"] == 0.25
        assert request["reasoning_effort"] == "low"
        assert "Rank them." in str(request["messages"])


async def test_a_provider_that_the_judge_service_holds_no_key_for_is_named(
    judge: tuple[FakeJudge, AsyncClient],
) -> None:
    model, client = judge
    group = TrajectoryGroup([attempt(1), attempt(2)])
    with pytest.raises(InvalidArgumentError) as refused:
        await ruler_score_group(group, "openai/o4-mini", client=client)
    assert "PODIUM_JUDGE_KEY_OPENAI" in refused.value.message
    assert "PODIUM_JUDGE_TRUSTED_BASE_URLS" in refused.value.message
    assert not model.requests


async def test_a_wrong_call_is_raised_though_exceptions_are_swallowed() -> None:
    group = TrajectoryGroup([attempt(1)])
    with pytest.raises(InvalidArgumentError, match="anthropic/claude"):
        await ruler_score_group(group, "anthropic/claude", swallow_exceptions=True)


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        ("", {}, ("", "", "")),
        ("big", {}, ("", "big", "")),
        ("podium/org/big", {}, ("", "org/big", "")),
        (
            "openai/o4-mini",
            {},
            ("https://api.openai.com/v1", "o4-mini", "PODIUM_JUDGE_KEY_OPENAI"),
        ),
        (
            "openrouter/org/big",
            {"api_key_env": "PODIUM_JUDGE_KEY"},
            ("https://openrouter.ai/api/v1", "org/big", "PODIUM_JUDGE_KEY"),
        ),
        ("openai/gpt-oss", {"base_url": "http://h/v1"}, ("http://h/v1", "openai/gpt-oss", "")),
    ],
)
def test_a_judges_name_says_where_it_is(
    name: str, more: dict[str, str], expected: tuple[str, str, str]
) -> None:
    judge = judge_of(name, **more)
    assert (judge.base_url, judge.model, judge.api_key_env) == expected


def test_an_address_among_arts_parameters_takes_the_providers_place() -> None:
    for extra in ({"api_base": "http://h/v1"}, {"base_url": "http://h/v1"}):
        judge = judge_of("openai/big", {**extra, "seed": 3})
        assert (judge.base_url, judge.model, judge.api_key_env) == ("http://h/v1", "big", "")
        assert list(judge.extra_body.fields) == ["seed"]
    both = judge_of("org/big", {"api_base": "http://a/v1", "base_url": "http://b/v1"})
    assert (both.base_url, both.model) == ("http://a/v1", "org/big")
    assert not both.extra_body.fields


def test_arts_module_of_rewards_is_there() -> None:
    assert rewards.ruler is ruler is podium.ruler
    assert rewards.ruler_score_group is ruler_score_group is podium.ruler_score_group


@pytest.mark.parametrize(
    ("name", "extra", "field", "text"),
    [
        ("anthropic/claude", {}, "judge_model", "allowed are"),
        ("org/model", {}, "judge_model", "podium/NAME"),
        ("openai/", {}, "judge_model", "openai/"),
        ("hosted_vllm/x", {}, "judge_model", "base_url"),
        ("podium/", {}, "judge_model", "podium/NAME"),
        ("m", {"api_key": "secret"}, "extra_litellm_params.api_key", "api_key_env"),
        ("m", {"headers": {"k": "secret"}}, "extra_litellm_params.headers", "api_key_env"),
        ("m", {"num_retries": 3}, "extra_litellm_params.num_retries", "retries"),
        ("m", {"n": 3}, "extra_litellm_params.n", "itself"),
        ("m", {"temperature": 9}, "extra_litellm_params.temperature", "0 to 2"),
        ("m", {"temperature": "hot"}, "extra_litellm_params.temperature", "'hot'"),
        ("m", {"seeds": {1, 2}}, "extra_litellm_params", "{1, 2}"),
        ("m", {"api_base": "ftp://h"}, "base_url", "ftp://h"),
    ],
)
def test_what_cannot_be_passed_on_is_named(
    name: str, extra: dict[str, Any], field: str, text: str
) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        judge_of(name, extra)
    (violation,) = refused.value.violations
    assert violation.field == field
    assert text in violation.description
    assert "secret" not in refused.value.message
