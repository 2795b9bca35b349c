from __future__ import annotations

import asyncio
import hashlib

import pytest
from podium.core.errors import FailedPreconditionError, NotFoundError
from podium.environments.email_search import tutorial
from podium.environments.types import user
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain.episode import Episode, PolicyLostError
from podium_rollout.domain.seeds import derive
from prometheus_client import REGISTRY
from support.guess_environment import Guess
from support.loop_clock import LoopClock
from support.rollout import (
    PolicyDouble,
    encode,
    group_request,
    sampled_ids,
    sampled_logprobs,
    script,
)
from support.waiting import eventually


async def play(
    request: rollout_pb.CollectGroupRequest, policy: PolicyDouble, attempt: int = 0
) -> pb.Trajectory:
    (trajectory,) = await Episode(request, attempt, Environments(), policy).run()
    return trajectory


def said(content: str, role: pb.Role.ValueType = pb.ROLE_USER) -> pb.Message:
    return pb.Message(role=role, content=content)


FIRST = said(user("Guess a digit.").content)


async def test_the_record_is_what_the_engine_saw_and_sampled_over_many_turns() -> None:
    request = group_request()
    replies = ["1", "seven 7", "4"]
    policy = PolicyDouble(script(request, {0: replies}), versions={1: 4, 2: 5})
    trajectory = await play(request, policy)

    (history,) = trajectory.histories
    seeds = [derive(11, trajectory.id, turn) for turn in range(3)]
    expected = [
        *encode([FIRST]),
        *sampled_ids("1"),
        *encode([said("higher")]),
        *sampled_ids("seven 7"),
        *encode([said("lower")]),
        *sampled_ids("4"),
    ]
    assert list(history.tokens.token_ids) == expected
    for call in policy.calls:
        assert call.prompt == expected[: len(call.prompt)]
    assert [(span.start, span.length) for span in history.tokens.spans] == [
        (len(call.prompt), len(sampled_ids(text)))
        for call, text in zip(policy.calls, replies, strict=True)
    ]
    assert [span.weights_version for span in history.tokens.spans] == [3, 4, 5]
    assert list(history.tokens.logprobs) == [
        number
        for text, seed in zip(replies, seeds, strict=True)
        for number in sampled_logprobs(text, seed)
    ]
    assert [message.content for message in history.messages] == [
        "Guess a digit.",
        "1",
        "higher",
        "seven 7",
        "lower",
        "4",
    ]


async def test_a_trajectory_says_what_it_is_and_how_it_went() -> None:
    request = group_request(attempts=3)
    trajectory = await play(request, PolicyDouble(script(request, {2: ["9", "4"]})), attempt=2)
    assert trajectory.id == f"{request.group_id}/t2"
    assert (trajectory.group_id, trajectory.attempt) == (request.group_id, 2)
    assert trajectory.scenario_id == "digit-4"
    assert trajectory.stop_reason == pb.STOP_REASON_TERMINATED
    assert trajectory.environment_reward == 1.0
    assert not trajectory.HasField("reward")
    assert dict(trajectory.metrics) == {"turns": 2.0, "success": 1.0}
    assert dict(trajectory.info) == {"said": "4"}
    assert 0 < trajectory.start_time.ToNanoseconds() <= trajectory.end_time.ToNanoseconds()


async def test_the_environment_may_cut_an_episode() -> None:
    trajectory = await play(group_request(), PolicyDouble(otherwise="cut"))
    assert trajectory.stop_reason == pb.STOP_REASON_TRUNCATED
    assert trajectory.environment_reward == 0.5


async def test_the_last_allowed_turn_ends_it() -> None:
    policy = PolicyDouble(otherwise="1")
    trajectory = await play(group_request(max_turns=3), policy)
    assert trajectory.stop_reason == pb.STOP_REASON_MAX_TURNS
    assert trajectory.metrics["turns"] == len(policy.calls) == 3
    assert trajectory.environment_reward == 0.0


async def test_a_prompt_that_no_longer_fits_ends_it_and_is_not_recorded() -> None:
    room = len(encode([FIRST])) + len(sampled_ids("1")) + 1
    policy = PolicyDouble(otherwise="1", window=room)
    trajectory = await play(group_request(), policy)
    assert trajectory.stop_reason == pb.STOP_REASON_CONTEXT_LENGTH
    assert len(policy.calls) == 1
    assert list(trajectory.histories[0].tokens.token_ids) == encode([FIRST]) + sampled_ids("1")
    assert trajectory.metrics["turns"] == 1


async def test_a_first_prompt_that_does_not_fit_leaves_no_tokens() -> None:
    trajectory = await play(group_request(), PolicyDouble(window=3))
    assert trajectory.stop_reason == pb.STOP_REASON_CONTEXT_LENGTH
    assert trajectory.histories[0].tokens == pb.TokenRecord()
    assert trajectory.histories[0].messages[0].content == "Guess a digit."


@pytest.mark.parametrize("reply", ["hang", "hold"])
async def test_the_deadline_ends_an_episode_wherever_it_waits(reply: str) -> None:
    request = group_request(timeout_seconds=60)
    policy = PolicyDouble(script(request, {0: ["1", reply]}))
    clock, hung = LoopClock(), Guess.hung
    playing = asyncio.create_task(play(request, policy))
    await eventually(lambda: policy.held + Guess.hung == hung + 1)
    clock.advance(60)
    trajectory = await playing
    assert trajectory.stop_reason == pb.STOP_REASON_DEADLINE
    assert not trajectory.HasField("failure")
    assert len(trajectory.histories[0].tokens.spans) == (2 if reply == "hang" else 1)
    assert policy.held == 0


async def test_t20_a_history_that_the_template_rewrites_is_begun_anew_and_counted() -> None:
    counted = REGISTRY.get_sample_value("podium_rollout_history_splits_total") or 0.0
    request = group_request()
    policy = PolicyDouble(script(request, {0: ["1", "4"]}), rewrites=True)
    trajectory = await play(request, policy)
    first, second = trajectory.histories
    assert list(first.tokens.token_ids) == encode([FIRST]) + sampled_ids("1")
    conversation = [FIRST, said("1", pb.ROLE_ASSISTANT), said("higher")]
    assert list(second.tokens.token_ids) == encode(conversation) + sampled_ids("4")
    assert [len(h.tokens.spans) for h in trajectory.histories] == [1, 1]
    assert trajectory.environment_reward == 1.0
    assert REGISTRY.get_sample_value("podium_rollout_history_splits_total") == counted + 1
    assert trajectory.metrics["history_splits"] == 1


class NeverContinues(PolicyDouble):
    async def render(self, request: inference_pb.RenderRequest) -> inference_pb.RenderResponse:
        raise FailedPreconditionError("rewritten", reason="HISTORY_NOT_CONTINUABLE")


async def test_a_first_prompt_has_nothing_to_begin_anew() -> None:
    with pytest.raises(FailedPreconditionError, match="rewritten"):
        await play(group_request(), NeverContinues())


class Rerenders(PolicyDouble):
    async def render(self, request: inference_pb.RenderRequest) -> inference_pb.RenderResponse:
        return inference_pb.RenderResponse(token_ids=encode(request.messages))


async def test_a_sampled_turn_that_is_rendered_again_never_gets_into_a_record() -> None:
    with pytest.raises(PolicyLostError, match="rendered a sampled turn again"):
        await play(group_request(), Rerenders(otherwise="1"))


async def test_each_generation_has_a_seed_from_ids_alone() -> None:
    request = group_request(attempts=2)
    policy = PolicyDouble(otherwise="1")
    for attempt in range(2):
        await play(request, policy, attempt)
    seeds = [call.sampling.seed for call in policy.calls]
    text = f"11/{request.group_id}/t1/7"
    assert seeds[15] == int(hashlib.sha256(text.encode()).hexdigest()[:16], 16) >> 2
    assert len(set(seeds)) == 16
    assert all(0 <= seed < 2**62 for seed in seeds)


async def test_all_attempts_meet_the_same_environment() -> None:
    request = group_request(attempts=2)
    for attempt in range(2):
        await play(request, PolicyDouble(), attempt)
    assert Guess.seeds == [derive(11, request.group_id)] * 2


async def test_a_greedy_generation_is_given_no_seed_and_recorded_as_greedy() -> None:
    request = group_request()
    request.sampling.temperature = 0.0
    policy = PolicyDouble()
    trajectory = await play(request, policy)
    assert not policy.calls[0].sampling.HasField("seed")
    assert trajectory.histories[0].tokens.spans[0].temperature == 0.0


async def test_s9_the_policy_is_asked_with_the_tutorials_parameters() -> None:
    request = group_request()
    request.sampling.temperature = tutorial.TEMPERATURE
    request.sampling.max_tokens = tutorial.MAX_TOKENS
    policy = PolicyDouble()
    trajectory = await play(request, policy)
    (call,) = policy.calls
    assert call.sampling.max_tokens == 150
    assert call.sampling.temperature == pytest.approx(0.7)
    assert call.policy == request.policy
    assert trajectory.histories[0].tokens.spans[0].temperature == pytest.approx(0.7)


async def test_s19_a_trajectory_has_the_state_and_reward_of_every_step() -> None:
    request = group_request()
    replies = ["1", "7", "4"]
    trajectory = await play(request, PolicyDouble(script(request, {0: replies})))
    steps = trajectory.transitions
    said = [m.content for m in trajectory.histories[0].messages if m.role == pb.ROLE_ASSISTANT]
    assert said == replies
    assert len(steps) == len(said) == trajectory.metrics["turns"]
    assert [step.state["tries"] for step in steps] == [1, 2, 3]
    assert [step.reward for step in steps] == [0.0, 0.0, 1.0]
    assert trajectory.environment_reward == sum(step.reward for step in steps)
    assert [step.terminated for step in steps] == [False, False, True]


async def test_s19_at_the_cap_the_last_step_is_not_done() -> None:
    trajectory = await play(group_request(max_turns=3), PolicyDouble(otherwise="1"))
    assert trajectory.stop_reason == pb.STOP_REASON_MAX_TURNS
    assert [(s.terminated, s.truncated) for s in trajectory.transitions] == [(False, False)] * 3
    assert trajectory.id == f"{trajectory.group_id}/t0"


async def test_s19_a_cut_is_told_from_an_end() -> None:
    request = group_request()
    policy = PolicyDouble(script(request, {0: ["1", "cut"]}))
    trajectory = await play(request, policy)
    assert [(s.terminated, s.truncated) for s in trajectory.transitions] == [
        (False, False),
        (False, True),
    ]


async def test_s19_a_state_of_megabytes_is_left_out() -> None:
    trajectory = await play(group_request(), PolicyDouble(otherwise="long state"))
    assert len(trajectory.transitions) == 8
    assert not any(step.HasField("state") for step in trajectory.transitions)


CALL = '<tool_call>{"name": "guess", "arguments": {"digit": 4}}</tool_call>'


async def test_tool_calls_reach_an_environment_that_offers_tools() -> None:
    trajectory = await play(group_request(options={"tools": True}), PolicyDouble(otherwise=CALL))
    (history,) = trajectory.histories
    assert [tool.name for tool in history.tools] == ["guess"]
    assert history.messages[-1].tool_calls[0].arguments_json == '{"digit": 4}'
    assert history.messages[-1].content == ""
    assert trajectory.info["said"] == '{"digit": 4}'
    assert list(history.tokens.token_ids)[-len(sampled_ids(CALL)) :] == sampled_ids(CALL)


async def test_without_tools_a_reply_stays_text() -> None:
    trajectory = await play(group_request(), PolicyDouble(otherwise=CALL))
    message = trajectory.histories[0].messages[-1]
    assert (message.content, len(message.tool_calls)) == (CALL, 0)


async def test_a_policy_that_is_not_loaded_ends_the_group_not_the_episode() -> None:
    with pytest.raises(NotFoundError, match="not loaded"):
        await play(group_request(job="other"), PolicyDouble())
