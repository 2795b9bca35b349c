"""Calls become histories by their tokens alone; every sampled token stands in one of them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.training.histories import join
from podium.types.v1 import trajectory_pb2 as pb


def call(
    prompt: Sequence[int],
    sampled: Sequence[int],
    *,
    request_id: str = "",
    policy: str = "job",
    untrainable: str = "",
    finish: pb.FinishReason.ValueType = pb.FINISH_REASON_STOP,
    repeated: bool = False,
) -> inference_pb.CapturedCall:
    text = " ".join(map(str, sampled))
    return inference_pb.CapturedCall(
        messages=[pb.Message(role=pb.ROLE_USER, content=" ".join(map(str, prompt)))],
        prompt_token_ids=prompt,
        generation=inference_pb.Generation(
            token_ids=sampled,
            logprobs=[-token / 100 for token in sampled],
            policy=policy,
            weights_version=3,
            finish_reason=finish,
            request_id=request_id or f"{list(prompt)}{list(sampled)}",
        ),
        temperature=0.5,
        untrainable=untrainable,
        repeated_request=repeated,
        reply=pb.Message(role=pb.ROLE_ASSISTANT, content=text),
    )


def shape(history: pb.History) -> tuple[list[int], list[tuple[int, int]]]:
    spans = [(span.start, span.length) for span in history.tokens.spans]
    return list(history.tokens.token_ids), spans


def test_a_prompt_that_begins_with_the_whole_history_continues_it() -> None:
    joined = join([call([1, 2], [3, 4]), call([1, 2, 3, 4, 5], [6])], "job")
    (history,) = joined.histories
    assert shape(history) == ([1, 2, 3, 4, 5, 6], [(2, 2), (5, 1)])
    assert list(history.tokens.logprobs) == [
        inference_pb.Generation(logprobs=[-n / 100]).logprobs[0] for n in (3, 4, 6)
    ]
    span = history.tokens.spans[1]
    assert (span.policy, span.weights_version, span.temperature) == ("job", 3, 0.5)
    assert [message.content for message in history.messages] == ["1 2 3 4 5", "6"]


def test_a_captured_call_keeps_the_version_of_each_of_its_tokens() -> None:
    moved = call([1, 2], [3, 4, 5])
    moved.generation.versions.add(tokens=2, weights_version=3)
    moved.generation.versions.add(tokens=1, weights_version=5)
    (history,) = join([moved, call([1, 2, 3, 4, 5, 6], [7])], "job").histories
    assert shape(history)[1] == [(2, 2), (4, 1), (6, 1)]
    assert [span.weights_version for span in history.tokens.spans] == [3, 5, 3]


def test_t20_anything_else_begins_a_new_history() -> None:
    """A turn that was tokenized otherwise, one cut short, a sub-agent's conversation."""
    calls = [call([1, 2], [3, 4]), call([1, 2, 34, 5], [6]), call([1, 2, 3], [7]), call([9], [8])]
    assert [shape(history) for history in join(calls, "job").histories] == [
        ([1, 2, 3, 4], [(2, 2)]),
        ([1, 2, 34, 5, 6], [(4, 1)]),
        ([1, 2, 3, 7], [(3, 1)]),
        ([9, 8], [(1, 1)]),
    ]


def test_conversations_that_take_turns_each_go_on() -> None:
    calls = [
        call([1], [2]),
        call([5], [6]),
        call([1, 2, 3], [4]),
        call([5, 6, 7], [8]),
        call([1, 2, 3, 4, 9], [9]),
    ]
    assert [shape(history)[0] for history in join(calls, "job").histories] == [
        [1, 2, 3, 4, 9, 9],
        [5, 6, 7, 8],
    ]


def test_of_several_choices_those_that_went_on_and_else_none_are_kept() -> None:
    both = [call([1], [2], request_id="r"), call([1], [3], request_id="r")]
    joined = join(both, "job")
    assert (joined.histories, joined.undecided) == ([], 1)
    went_on = [*both, call([1, 3, 4], [5])]
    assert [shape(h)[0] for h in join(went_on, "job").histories] == [[1, 3, 4, 5]]
    later = [
        call([1], [2]),
        call([1, 2, 3], [4], request_id="r"),
        call([1, 2, 3], [5], request_id="r"),
        call([1, 2, 3, 5, 6], [7]),
    ]
    assert [shape(history) for history in join(later, "job").histories] == [
        ([1, 2], [(1, 1)]),
        ([1, 2, 3, 5, 6, 7], [(3, 1), (5, 1)]),
    ]


def test_t21_an_answer_that_was_lost_on_its_way_is_not_trained() -> None:
    calls = [
        call([1], [2]),
        call([1, 2, 3], [4]),
        call([1, 2, 3], [5], repeated=True),
        call([9], [8], repeated=True),
        call([1, 2, 3, 5, 6], [7]),
    ]
    assert [shape(history) for history in join(calls, "job").histories] == [
        ([1, 2, 3, 5, 6, 7], [(1, 1), (3, 1), (5, 1)]),
        ([9, 8], [(1, 1)]),
    ]
    first = [call([1], [2]), call([1], [3], repeated=True)]
    assert [shape(history)[0] for history in join(first, "job").histories] == [[1, 3]]


def test_what_must_not_train_is_context_alone() -> None:
    calls = [call([1], [2], untrainable="top_p is 0.5"), call([1, 2, 3], [4])]
    joined = join(calls, "job")
    assert [shape(history) for history in joined.histories] == [([1, 2, 3, 4], [(3, 1)])]
    assert joined.untrainable == ["top_p is 0.5"]


def test_calls_that_nobody_waited_for_and_other_policies_are_left_out() -> None:
    calls = [
        call([1], [2], finish=pb.FINISH_REASON_ABORTED),
        call([1], [3]),
        call([1, 3, 4], [5], policy="other"),
    ]
    joined = join(calls, "job")
    assert [shape(history)[0] for history in joined.histories] == [[1, 3]]
    assert joined.aborted == 1


TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=3)


@given(st.lists(st.tuples(TOKENS, TOKENS, st.integers(-1, 5)), max_size=8))
def test_t20_every_sampled_token_stands_in_one_history_at_its_place(
    turns: list[tuple[list[int], list[int], int]],
) -> None:
    calls: list[inference_pb.CapturedCall] = []
    for number, (new, sampled, after) in enumerate(turns):
        # Each its own: several answers to one prompt are test_choices.py's.
        prompt = [10 + number, *new]
        if 0 <= after < len(calls):
            earlier = calls[after]
            whole = [*earlier.prompt_token_ids, *earlier.generation.token_ids]
            prompt = [*whole, *prompt]
        calls.append(call(prompt, sampled, request_id=str(number)))
    histories = join(calls, "job").histories
    found = {}
    for history in histories:
        tokens = list(history.tokens.token_ids)
        at = 0
        for span in history.tokens.spans:
            end = span.start + span.length
            logprobs = list(history.tokens.logprobs)[at : at + span.length]
            at += span.length
            assert span.request_id not in found
            found[span.request_id] = (tokens[: span.start], tokens[span.start : end], logprobs)
        assert at == len(history.tokens.logprobs)
    assert found == {
        each.generation.request_id: (
            list(each.prompt_token_ids),
            list(each.generation.token_ids),
            list(each.generation.logprobs),
        )
        for each in calls
    }
