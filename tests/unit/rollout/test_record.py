from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium.core.token_records import spans_by_turn, token_record_violations
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.domain.record import RecordedTokens

TURN = st.tuples(
    st.lists(st.integers(0, 50_000), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 50_000), st.integers(-64, 0)), max_size=5),
    st.integers(0, 9),
)


def generation(*ids: int, version: int = 3) -> inference_pb.Generation:
    return inference_pb.Generation(
        token_ids=ids,
        logprobs=[-0.5] * len(ids),
        policy="job",
        weights_version=version,
        finish_reason=pb.FINISH_REASON_LENGTH,
        request_id="r",
    )


@given(st.lists(TURN, max_size=6))
def test_t19_spans_cut_the_sampled_tokens_out_of_the_record_exactly(
    turns: list[tuple[list[int], list[tuple[int, int]], int]],
) -> None:
    record, expected = RecordedTokens(), []
    for context, sampled, version in turns:
        record.context(context)
        ids, logprobs = [i for i, _ in sampled], [n / 64 for _, n in sampled]
        record.sampled(
            inference_pb.Generation(token_ids=ids, logprobs=logprobs, weights_version=version), 0.5
        )
        expected += [(ids, logprobs, version)] if ids else []
    built = record.build()
    found, at = [], 0
    for span in built.spans:
        ids = list(built.token_ids[span.start : span.start + span.length])
        found.append((ids, list(built.logprobs[at : at + span.length]), span.weights_version))
        at += span.length
        assert span.temperature == 0.5
    assert found == expected
    assert at == len(built.logprobs)
    context_length = sum(len(context) for context, _, _ in turns)
    assert len(built.token_ids) == context_length + len(built.logprobs)


def test_t22_a_span_says_who_sampled_it() -> None:
    record = RecordedTokens()
    record.context([1, 2])
    record.sampled(generation(7, 8), 0.75)
    assert list(record.build().spans) == [
        pb.SampledSpan(
            start=2,
            length=2,
            policy="job",
            weights_version=3,
            temperature=0.75,
            finish_reason=pb.FINISH_REASON_LENGTH,
            request_id="r",
        )
    ]


def test_a_turn_that_adds_no_context_is_refused() -> None:
    record = RecordedTokens()
    record.context([1, 2])
    record.sampled(generation(7), 1.0)
    before = record.build()
    with pytest.raises(ValueError, match="nothing follows the record of 3"):
        record.context([])
    assert record.build() == before


@pytest.mark.parametrize("logprobs", [[], [-0.5], [-0.5] * 3])
def test_each_sampled_token_needs_one_logprob(logprobs: list[float]) -> None:
    record = RecordedTokens()
    record.context([1])
    with pytest.raises(ValueError, match="log-probs for 2 sampled tokens"):
        record.sampled(inference_pb.Generation(token_ids=[7, 8], logprobs=logprobs), 1.0)
    assert not record.build().spans


def test_an_empty_generation_leaves_no_span() -> None:
    record = RecordedTokens()
    record.context([1])
    record.sampled(generation(), 1.0)
    assert record.build() == pb.TokenRecord(token_ids=[1])


def two_versions(*tokens: int) -> inference_pb.Generation:
    made = generation(7, 8, 9)
    for version, count in enumerate(tokens, start=3):
        made.versions.add(tokens=count, weights_version=version)
    return made


def test_an_answer_of_two_versions_is_two_spans_of_one_turn() -> None:
    record = RecordedTokens()
    record.context([1, 2])
    record.sampled(two_versions(1, 2), 0.75)
    record.context([3])
    record.sampled(generation(4), 0.75)
    built = record.build()
    assert [(s.start, s.length, s.weights_version, s.finish_reason) for s in built.spans] == [
        (2, 1, 3, pb.FINISH_REASON_UNSPECIFIED),
        (3, 2, 4, pb.FINISH_REASON_LENGTH),
        (6, 1, 3, pb.FINISH_REASON_LENGTH),
    ]
    assert {span.request_id for span in built.spans} == {"r"}
    assert token_record_violations(built, "tokens") == []
    assert [[s.start for s in turn] for turn in spans_by_turn(built)] == [[2, 3], [6]]


@pytest.mark.parametrize("tokens", [(1,), (1, 3), (3, 0), (4, -1)])
def test_versions_that_are_not_of_every_token_are_refused(tokens: tuple[int, ...]) -> None:
    record = RecordedTokens()
    record.context([1])
    with pytest.raises(ValueError, match="3 were sampled"):
        record.sampled(two_versions(*tokens), 1.0)
    assert record.build() == pb.TokenRecord(token_ids=[1])
