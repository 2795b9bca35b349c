"""Review 3j: an opinion says all that it takes to ask the judge again."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import httpx
import pytest
from google.protobuf import struct_pb2
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_judge.adapters.judge_model import shown
from podium_judge.domain.question import nonce_of
from support.fake_judge import Answer, FakeJudge, fails, grades, refuses, says, scores, truncated
from support.judging import JudgeBench, by_number, group_of, model, rewards

HONEST = scores(by_number)
ATTEMPTS = ("answer 3", "answer 9", "answer 1")


def replica(judge: FakeJudge, client: httpx.AsyncClient) -> JudgeBench:
    """One that knows nothing of what others were asked."""
    return JudgeBench(judge, client, temperature=0.25, max_completion_tokens=128)


def opinions(group: trajectory_pb2.Group) -> list[trajectory_pb2.JudgeOpinion]:
    return list(group.judgements[0].opinions)


def digest_of(request: dict[str, Any]) -> str:
    system, user = (message["content"] for message in request["messages"][:2])
    return hashlib.sha256(f"{system}\0{user}".encode()).hexdigest()


async def test_the_same_group_is_asked_about_in_the_same_words_and_the_opinion_says_which(
    judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    judge.then(HONEST)
    found = [await replica(judge, client).score(group_of(*ATTEMPTS)) for _ in range(2)]
    first, again = judge.requests
    assert first == again
    assert found[0] == found[1]
    (opinion,) = opinions(found[0])
    assert opinion.address == judge.base_url
    assert opinion.prompt_digest == digest_of(first)
    assert opinion.order_seed == "job/s1/g0"
    assert opinion.finish_reason == "stop"
    asked = (opinion.temperature, opinion.seed, opinion.max_completion_tokens)
    assert asked == (first["temperature"], first["seed"], first["max_completion_tokens"])
    assert (opinion.temperature, opinion.max_completion_tokens) == (0.25, 128)
    assert 0 <= opinion.seed < 2**31
    assert not opinion.refused_parameters


async def test_what_an_api_refuses_is_told_and_not_that_it_was_sent(
    judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    judge.then(refuses("temperature", refuses("seed", HONEST)))
    bench = replica(judge, client)
    # The second group is never asked about with them.
    for group, attempts in (("job/s1/g0", ATTEMPTS), ("job/s1/g1", ("answer 2", "answer 5"))):
        (opinion,) = opinions(await bench.score(group_of(*attempts, group=group)))
        assert list(opinion.refused_parameters) == ["seed", "temperature"]
        assert not opinion.HasField("temperature")
        assert not opinion.HasField("seed")
        assert opinion.max_completion_tokens == 128


async def test_members_of_a_panel_draw_by_seeds_of_their_own(
    judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    judge.then(HONEST)
    fixed = struct_pb2.Struct()
    fixed.update({"seed": 7})
    spec = spec_pb2.RulerSpec(
        judges=[model(judge), model(judge), model(judge, extra_body=fixed)], both_orders=True
    )
    told = opinions(await replica(judge, client).score(group_of(*ATTEMPTS), spec))
    assert [each.order_seed for each in told] == [
        "job/s1/g0", "job/s1/g0", "job/s1/g0#1", "job/s1/g0#1", "job/s1/g0#2", "job/s1/g0#2",
    ]  # fmt: skip
    seeds = [each.seed for each in told]
    assert seeds[4:] == [7, 7]
    assert len(set(seeds[:4])) == 4
    sent = {(digest_of(request), request["seed"]) for request in judge.requests}
    assert {(each.prompt_digest, each.seed) for each in told} == sent


async def test_attempts_that_are_seen_alone_have_each_a_prompt_of_their_own(
    judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    judge.then(grades(lambda name, text: by_number(text)))
    spec = spec_pb2.Scorer(
        kind=spec_pb2.SCORER_KIND_RUBRIC,
        rubric=spec_pb2.RubricSpec(criteria=[spec_pb2.Criterion(name="right", description="Is.")]),
    )
    scored = (await replica(judge, client).rewarded(group_of(*ATTEMPTS), spec)).group
    (opinion,) = opinions(scored)
    assert (opinion.prompt_digest, opinion.finish_reason) == ("", "")
    assert not opinion.HasField("seed")
    assert (opinion.address, opinion.temperature) == (judge.base_url, 0.25)
    sent = {(digest_of(request), request["seed"]) for request in judge.requests}
    assert {(each.prompt_digest, each.seed) for each in opinion.attempts} == sent
    assert len(sent) == 3
    assert {each.finish_reason for each in opinion.attempts} == {"stop"}


async def test_an_opinion_that_does_not_count_says_how_it_came_about(
    judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    judge.then(truncated(HONEST))
    scored = await replica(judge, client).score(group_of(*ATTEMPTS))
    (opinion,) = opinions(scored)
    assert opinion.failure
    assert opinion.finish_reason == "length"
    assert opinion.prompt_digest == digest_of(judge.requests[0])
    assert opinion.seed == judge.requests[0]["seed"]


async def test_one_that_never_answered_has_its_address_and_its_prompt(
    judge: FakeJudge, other_judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    judge.then(HONEST)
    other_judge.then(fails(418))
    spec = spec_pb2.RulerSpec(judges=[model(judge), model(judge), model(other_judge)])
    told = opinions(await replica(judge, client).score(group_of(*ATTEMPTS), spec))
    assert told[2].failure
    assert told[2].address == other_judge.base_url
    assert told[2].prompt_digest == digest_of(other_judge.requests[0])
    assert not told[2].HasField("temperature")
    assert told[2].finish_reason == ""


async def test_a_known_opinion_names_the_group_that_was_asked_about(
    judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    judge.then(HONEST)
    bench = replica(judge, client)
    (first,) = opinions(await bench.score(group_of(*ATTEMPTS, group="job/s1/g0")))
    (known,) = opinions(await bench.score(group_of(*ATTEMPTS, group="job/s2/g5")))
    assert known.cached
    assert known.order_seed == "job/s1/g0"
    assert (known.prompt_digest, known.seed) == (first.prompt_digest, first.seed)


@pytest.mark.parametrize("ended", [None, 7, ["stop"], {"a": 1}, "\ud800" * 9, "x" * 100_000])
async def test_any_end_of_an_answer_is_taken(
    judge: FakeJudge, client: httpx.AsyncClient, ended: object
) -> None:
    entries = [{"attempt_id": str(n), "explanation": "", "score": n / 9} for n in (1, 2, 3)]
    said = {"message": {"content": json.dumps({"scores": entries})}, "finish_reason": ended}
    judge.then(lambda _: Answer(body=json.dumps({"choices": [said]}).encode()))
    scored = await replica(judge, client).score(group_of(*ATTEMPTS))
    assert None not in rewards(scored)
    assert len(opinions(scored)[0].finish_reason) <= 64


def test_tags_end_in_what_no_text_holds() -> None:
    first = nonce_of("a question", [])
    assert first == nonce_of("a question", ["of others"])
    assert nonce_of("a question", ["so", f"</attempt-{first}>"]) != first
    assert nonce_of("another", []) != first


def test_they_end_in_more_where_somebody_wrote_all_that_is_short() -> None:
    class Everything(str):
        """Holds whatever is as short as most nonces are."""

        def __contains__(self, part: object) -> bool:
            return len(str(part)) < len("-abcdef")

    assert len(nonce_of("a question", [Everything()])) == 6


def test_what_an_operators_address_hides_no_job_is_told() -> None:
    assert shown("https://me:secret@judge.example:8443/v1?key=abc#x") == (
        "https://judge.example:8443/v1"
    )


async def test_a_scorer_over_http_is_told_by_its_address(
    judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    judge.then(says("no scores at all"))
    http = spec_pb2.HttpScorerSpec(base_url=judge.base_url)
    spec = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_HTTP, http=http)
    (opinion,) = opinions((await replica(judge, client).rewarded(group_of(*ATTEMPTS), spec)).group)
    assert opinion.failure
    assert opinion.address == judge.base_url
    assert not opinion.HasField("temperature")
