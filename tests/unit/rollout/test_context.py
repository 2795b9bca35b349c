"""The context window: never exceeded, and nothing is dropped without a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import policy_pb2, spec_pb2
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain import metrics
from podium_rollout.domain.episode import Episode
from support.rollout import SAMPLED, PolicyDouble, encode, group_request

FIRST = encode([pb.Message(role=pb.ROLE_USER, content="Guess a digit.")])
HINT = encode([pb.Message(role=pb.ROLE_USER, content="higher")])
REPLY = 12


class Wordy(PolicyDouble):
    """Always has more to say than it may, and is cut as the engine cuts."""

    async def sample(
        self, prompt: list[int], policy: policy_pb2.PolicyRef, sampling: policy_pb2.SamplingParams
    ) -> inference_pb.Generation:
        generation = await super().sample(prompt, policy, sampling)
        count = sampling.max_tokens
        generation.token_ids[:] = [SAMPLED] * count
        generation.logprobs[:] = [-0.5] * count
        generation.text = "1"
        generation.finish_reason = pb.FINISH_REASON_LENGTH
        return generation


async def play(
    window: int, policy: spec_pb2.ContextPolicy.ValueType, turns: int = 8
) -> tuple[pb.Trajectory, Wordy]:
    request = group_request(context_policy=policy, max_turns=turns)
    request.sampling.max_tokens = REPLY
    double = Wordy(window=window)
    (trajectory,) = await Episode(request, 0, Environments(), double).run()
    return trajectory, double


class Keeping(PolicyDouble):
    """Keeps what it is asked with."""

    def __init__(self) -> None:
        super().__init__(otherwise="9")
        self.asked: list[inference_pb.GenerateRequest] = []

    async def generate(
        self, request: inference_pb.GenerateRequest
    ) -> inference_pb.GenerateResponse:
        self.asked.append(request)
        return await super().generate(request)


async def test_a_conversation_is_asked_on_with_one_request_that_no_turn_copies() -> None:
    double = Keeping()
    request = group_request(max_turns=5)
    (trajectory,) = await Episode(request, 0, Environments(), double).run()
    assert len(double.asked) == 5
    assert len({id(each) for each in double.asked}) == 1
    (history,) = trajectory.histories
    assert double.asked[-1].prompt_token_ids == history.tokens.token_ids
    # What a trajectory holds is its own.
    double.asked[-1].prompt_token_ids.append(7)
    double.asked[-1].render.messages[0].content = "another"
    assert len(history.tokens.token_ids) + 1 == len(double.asked[-1].prompt_token_ids)
    assert history.messages[0].content != "another"


async def test_the_last_turn_gets_the_room_that_there_is() -> None:
    before = metrics.CONTEXT_CAPPED._value.get()
    window = len(FIRST) + REPLY + len(HINT) + 5
    trajectory, policy = await play(window, spec_pb2.CONTEXT_POLICY_CAP)
    assert [call.sampling.max_tokens for call in policy.calls] == [REPLY, 5]
    assert trajectory.stop_reason == pb.STOP_REASON_CONTEXT_LENGTH
    assert trajectory.metrics["capped_turns"] == 1
    assert len(trajectory.histories[0].tokens.token_ids) == window
    assert metrics.CONTEXT_CAPPED._value.get() == before + 1


async def test_a_job_may_stop_before_a_turn_that_would_be_cut() -> None:
    window = len(FIRST) + REPLY + len(HINT) + 5
    trajectory, policy = await play(window, spec_pb2.CONTEXT_POLICY_STOP)
    assert [call.sampling.max_tokens for call in policy.calls] == [REPLY]
    assert trajectory.stop_reason == pb.STOP_REASON_CONTEXT_LENGTH
    assert "capped_turns" not in trajectory.metrics
    assert len(trajectory.histories[0].tokens.token_ids) == len(FIRST) + REPLY


@pytest.mark.parametrize("policy", [spec_pb2.CONTEXT_POLICY_CAP, spec_pb2.CONTEXT_POLICY_STOP])
async def test_a_turn_that_just_fits_is_not_touched(
    policy: spec_pb2.ContextPolicy.ValueType,
) -> None:
    trajectory, double = await play(len(FIRST) + REPLY, policy)
    assert [call.sampling.max_tokens for call in double.calls] == [REPLY]
    assert "capped_turns" not in trajectory.metrics
    assert trajectory.stop_reason == pb.STOP_REASON_CONTEXT_LENGTH


@given(
    window=st.integers(1, 200),
    policy=st.sampled_from([spec_pb2.CONTEXT_POLICY_CAP, spec_pb2.CONTEXT_POLICY_STOP]),
)
async def test_a_record_never_exceeds_the_window_and_never_loses_its_start(
    window: int, policy: spec_pb2.ContextPolicy.ValueType
) -> None:
    trajectory, double = await play(window, policy)
    (history,) = trajectory.histories
    ids = list(history.tokens.token_ids)
    assert len(ids) <= window
    expected = list[int]()
    for turn, call in enumerate(double.calls):
        expected += FIRST if turn == 0 else HINT
        assert call.prompt == expected
        expected += [SAMPLED] * call.sampling.max_tokens
    assert ids == expected
    full = trajectory.stop_reason == pb.STOP_REASON_CONTEXT_LENGTH
    assert full or trajectory.metrics["turns"] == 8
    told = len(double.calls) and double.calls[-1].sampling.max_tokens < REPLY
    assert trajectory.metrics.get("capped_turns", 0) == bool(told)
