"""Scorers over HTTP: one's own code behind `/score`, reward models behind vLLM's endpoints."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx
import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from podium.judge.v1 import judge_service_pb2
from podium.types.v1 import spec_pb2
from support.fake_judge import NEVER, Answer, Behaviour, FakeJudge, fails
from support.http_scoring import CLASSIFY, POOLING, Bench, answers, rewarding, root
from support.judging import QUESTION, JudgeBench, group_of, rewards, said

ATTEMPTS = ("answer 3", "answer 9", "answer 1")


@pytest.fixture
def bench(judge: FakeJudge, other_judge: FakeJudge, client: httpx.AsyncClient) -> Bench:
    return Bench(judge, other_judge, client)


async def test_a_served_scorer_sees_the_group_and_its_words_are_kept(bench: Bench) -> None:
    group = group_of(*ATTEMPTS[:2])
    group.scenario.id = "s1"
    group.scenario.data.update({"city": "Ulm"})
    first = group.trajectories[0]
    first.environment_reward = 1.5
    first.metrics["turns"] = 2
    first.metrics["odd"] = math.nan
    first.info.update({"result": [1, None]})
    bench.scorer.then(answers({"scores": [-3, 0.5], "reasons": ["bad\ud800", None]}))
    answer = await bench.rewarded(group, bench.spec(extra_body=None))
    assert rewards(answer.group) == [-3, 0.5]
    assert [t.explanation for t in answer.group.trajectories] == ["bad\ufffd", ""]
    assert dict(answer.group.trajectories[0].reward_parts) == {"http": -3}
    (request,) = bench.scorer.requests
    assert bench.scorer.paths == ["/score"]
    assert bench.scorer.authorizations == [None]
    assert request["scenario"] == {"id": "s1", "split": "", "data": {"city": "Ulm"}}
    assert request["trajectories"][0] == {
        "id": "job/s1/g0/t0",
        "messages": [
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": "answer 3"},
        ],
        "other_conversations": [],
        "tools": [],
        "metrics": {"turns": 2, "odd": None},
        "reward": 1.5,
        "stop_reason": "terminated",
        "info": {"result": [1, None]},
    }
    assert request["trajectories"][1]["reward"] is None
    (judgement,) = answer.group.judgements
    (opinion,) = judgement.opinions
    assert (judgement.part, opinion.model, opinion.calls) == ("http", root(bench.scorer), 1)
    assert [each.score for each in opinion.attempts] == [-3, 0.5]
    assert answer.usage.calls == 1


async def test_null_is_an_attempt_without_a_score(bench: Bench) -> None:
    bench.scorer.then(answers({"scores": [1, None, None], "reasons": ["", "no answer", None]}))
    scored = await bench.scored(*ATTEMPTS)
    assert rewards(scored) == [1, None, None]
    assert [t.explanation for t in scored.trajectories[1:]] == [
        "not scored: http: no answer",
        "not scored: http: the scorer gave this attempt no score",
    ]
    bench.scorer.then(answers({"scores": [None] * 3}))
    assert (await bench.scored(*ATTEMPTS)).skip_reason == "no_reward"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"scores": [1, 2]}, "the scorer gave 2 scores for 3 attempts"),
        ({"scores": []}, "the scorer gave 0 scores for 3 attempts"),
        ({"scores": [1, 2, "3"]}, "`scores[2]` is not a number"),
        ({"scores": [1, True, 3]}, "`scores[1]` is not a number"),
        ({"scores": [1, [2], 3]}, "`scores[1]` is not a number"),
        ('{"scores": [1, 1e999, 3]}', "`scores[1]` is not finite"),
        (f'{{"scores": [1, 1{"0" * 400}, 3]}}', "`scores[1]` is not finite"),
        ('{"scores": [1, NaN, 3]}', "the answer is not one JSON object"),
        ('{"scores": [1, 2, 3], "scores": [1, 2, 3]}', "the answer is not one JSON object"),
        ("[" * 100_000, "the answer is not one JSON object"),
        ("", "the answer is not one JSON object"),
        ([1, 2, 3], "the answer is not one JSON object"),
        ({"score": [1, 2, 3]}, "the scorer's answer has no list `scores`"),
        ({"scores": {"0": 1}}, "the scorer's answer has no list `scores`"),
        ({"scores": [1, 2, 3], "reasons": ["a"]}, "`reasons` are not a list of 3"),
        ({"scores": [1, 2, 3], "reasons": "abc"}, "`reasons` are not a list of 3"),
        ({"scores": [1, 2, 3], "reasons": ["a", 2, ""]}, "`reasons[1]` is no text"),
    ],
)
async def test_an_answer_of_no_use_skips_the_group_and_says_why(
    bench: Bench, body: Any, reason: str
) -> None:
    bench.scorer.then(answers(body))
    scored = await bench.scored(*ATTEMPTS)
    assert scored.skip_reason == "judge_failed"
    assert rewards(scored) == [None] * 3
    assert reason in scored.judgements[0].opinions[0].failure
    assert all(reason in t.explanation for t in scored.trajectories)


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (fails(422, '{"error": "ValueError: no city"}'), "HTTP 422: ValueError: no city"),
        (fails(400, "<html>"), "HTTP 400"),
        (fails(307, location="http://127.0.0.1:9/"), "HTTP 307"),
        (fails(500), "the scorer answered HTTP 500 each time"),
    ],
)
async def test_a_scorer_that_will_not_costs_the_group_and_not_the_job(
    bench: Bench, behaviour: Behaviour, reason: str
) -> None:
    bench.scorer.then(behaviour)
    scored = await bench.scored(*ATTEMPTS)
    assert scored.skip_reason == "judge_failed"
    assert reason in scored.trajectories[0].explanation


async def test_a_scorer_that_is_away_is_asked_again_and_then_waited_for(bench: Bench) -> None:
    bench.scorer.then(fails(503), fails(429, retry_after="0"), answers({"scores": [1, 2, 3]}))
    assert rewards(await bench.scored(*ATTEMPTS)) == [1, 2, 3]
    for behaviour in (fails(503), fails(404), lambda _: Answer(delay=NEVER)):
        bench.scorer.then(behaviour)
        with pytest.raises(UnavailableError, match="the scorer") as caught:
            await bench.scored(*ATTEMPTS, timeout_seconds=0.05)
        assert caught.value.reason == "JUDGE_UNAVAILABLE"
    bench.scorer.then(fails(401))
    with pytest.raises(FailedPreconditionError, match="check its key") as refused:
        await bench.scored(*ATTEMPTS)
    assert refused.value.reason == "JUDGE_MISCONFIGURED"


async def test_an_endless_answer_is_not_read_to_its_end(bench: Bench) -> None:
    bench.scorer.then(answers('{"scores": [' + "1," * 3_000_000 + "1]}"))
    with pytest.raises(UnavailableError, match="DecodingError"):
        await bench.scored(*ATTEMPTS)


async def test_of_an_address_that_nobody_trusts_a_job_learns_nothing(
    judge: FakeJudge, other_judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    bench = Bench(judge, other_judge, client, trusted_base_urls=())
    for behaviour in (fails(500), fails(418, '{"error": "secret"}'), answers("secret")):
        other_judge.then(behaviour)
        scored = await bench.scored(*ATTEMPTS)
        assert scored.skip_reason == "judge_failed"
        words = scored.trajectories[0].explanation
        assert "gave no answer that can be used" in words
        assert not {"secret", "418", "500"} & set(words.replace(".", " ").split())
    other_judge.then(fails(503))
    with pytest.raises(UnavailableError, match="gave no answer that can be used"):
        await bench.scored(*ATTEMPTS)
    with pytest.raises(InvalidArgumentError, match="keys go only to"):
        await bench.scored(*ATTEMPTS, api_key_env="PODIUM_JUDGE_KEY")
    other_judge.then(answers({"scores": [1, 2, 3]}))
    assert rewards(await bench.scored(*ATTEMPTS)) == [1, 2, 3]


async def test_a_key_goes_where_it_is_trusted_and_only_when_it_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_JUDGE_KEY_RM", "sk-1")
    bench.scorer.then(answers({"scores": [1, 2, 3]}))
    await bench.scored(*ATTEMPTS, api_key_env="PODIUM_JUDGE_KEY_RM")
    assert bench.scorer.authorizations == ["Bearer sk-1"]


async def test_what_contradicts_itself_is_refused_with_every_fault(bench: Bench) -> None:
    wrong = bench.spec(model="m", class_index=1, base_url="http://u@h/x?y")
    wrong.http.extra_body.update({"trajectories": []})
    with pytest.raises(InvalidArgumentError) as caught:
        await bench.rewarded(group_of("a"), wrong, bench.spec(POOLING, class_index=0))
    assert [each.field for each in caught.value.violations] == [
        "reward.scorers[0].http.base_url",
        "reward.scorers[0].http.model",
        "reward.scorers[0].http.class_index",
        "reward.scorers[0].http.extra_body.trajectories",
        "reward.scorers[1].http.class_index",
    ]


@pytest.mark.parametrize(
    "shape", [lambda x: x, lambda x: [x], lambda x: [[x]], lambda x: [[50], [-50], [x]]]
)
async def test_a_pooling_reward_model_rates_each_conversation(bench: Bench, shape: Any) -> None:
    bench.scorer.then(rewarding(lambda number: shape(number - 5.5)))
    spec = bench.spec(POOLING, model="rm")
    spec.http.extra_body.update({"use_activation": False, "truncate_prompt_tokens": 512})
    answer = await bench.rewarded(group_of("answer 3", "answer 9", "answer 3"), spec)
    assert rewards(answer.group) == [-2.5, 3.5, -2.5]
    assert set(bench.scorer.paths) == {"/pooling"}
    # The same words are asked about once.
    assert len(bench.scorer.requests) == 2
    request = bench.scorer.requests[0]
    assert request["messages"][0] == {"role": "user", "content": QUESTION}
    assert request["model"] == "rm"
    assert request["use_activation"] is False
    assert repr(request["truncate_prompt_tokens"]) == "512"
    assert (answer.usage.calls, answer.usage.prompt_tokens) == (2, 14)
    assert answer.group.judgements[0].opinions[0].model == "rm"


def classes(*probabilities: float) -> Behaviour:
    data = [{"index": 0, "label": "x", "probs": list(probabilities), "num_classes": 2}]
    return answers({"object": "list", "data": data, "usage": {"prompt_tokens": 10**400}})


async def test_a_classifiers_class_is_the_score(bench: Bench) -> None:
    bench.scorer.then(classes(0.25))
    assert rewards(await bench.scored("a", protocol=CLASSIFY)) == [0.25]
    assert bench.scorer.paths == ["/classify"]
    assert "model" not in bench.scorer.requests[0]
    bench.scorer.then(classes(0.25, 0.75))
    assert rewards(await bench.scored("b", protocol=CLASSIFY, class_index=1)) == [0.75]
    unsaid = await bench.scored("c", protocol=CLASSIFY)
    assert "has 2 classes; class_index must say which" in unsaid.trajectories[0].explanation
    beyond = await bench.scored("d", protocol=CLASSIFY, class_index=2)
    assert "2 classes, from 0; class_index is 2" in beyond.trajectories[0].explanation


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"data": [{"data": [0.1, 0.2]}]}, "the model gave 2 numbers"),
        ({"data": [{"data": []}]}, "the model gave 0 numbers"),
        ({"data": [{"data": [[0.1, 0.2], [0.3, 0.4]]}]}, "the model gave 2 numbers"),
        ({"data": [{"data": "aGVsbG8="}]}, "the reward is not a number"),
        ('{"data": [{"data": [NaN]}]}', "not one JSON object"),
        ('{"data": [{"data": [1e999]}]}', "the reward is not finite"),
        ({"data": []}, "no list `data` of one result"),
        ({"error": {"message": "no"}}, "no list `data` of one result"),
    ],
)
async def test_a_model_that_is_no_reward_model_says_so(
    bench: Bench, body: Any, reason: str
) -> None:
    bench.scorer.then(answers(body))
    scored = await bench.scored("answer 3", "answer 9", protocol=POOLING)
    assert scored.skip_reason == "judge_failed"
    assert reason in scored.trajectories[0].explanation


async def test_what_does_not_fit_the_reward_model_costs_its_attempt(bench: Bench) -> None:
    def short(request: dict[str, Any]) -> Answer:
        if "9" in request["messages"][-1]["content"]:
            return fails(400, '{"error": {"message": "maximum context length is 8"}}')(request)
        return rewarding(lambda number: number)(request)

    bench.scorer.then(short)
    scored = await bench.scored(*ATTEMPTS, protocol=POOLING)
    assert rewards(scored) == [3, None, 1]
    assert (
        "http: the scorer answered HTTP 400: maximum context length is 8"
        in scored.trajectories[1].explanation
    )


async def test_several_conversations_count_alike(bench: Bench) -> None:
    bench.scorer.then(rewarding(lambda number: number))
    # The first is only the beginning of the second.
    attempt = [said("answer 8"), said("answer 8", "answer 3"), said("answer 9")]
    assert rewards(await bench.scored(attempt, [], protocol=POOLING)) == [6, None]
    asked = [request["messages"][-1]["content"] for request in bench.scorer.requests]
    assert sorted(asked) == ["answer 3", "answer 9"]


async def test_calls_that_no_template_can_read_are_sent_as_what_they_are(bench: Bench) -> None:
    history = said("answer 1")
    for arguments in ('{"city": "Ulm"}', "{city", "[1]", '{"a": NaN}'):
        history.messages[1].tool_calls.add(id="c", name="find", arguments_json=arguments)
    bench.scorer.then(rewarding(lambda number: number))
    await bench.scored([history], protocol=POOLING)
    calls = bench.scorer.requests[0]["messages"][1]["tool_calls"]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [
        {"city": "Ulm"},
        {"malformed": "{city"},
        {"malformed": "[1]"},
        {"malformed": '{"a": NaN}'},
    ]


async def test_reward_models_count_against_budgets_of_tokens(bench: Bench) -> None:
    # Of a conversation of these a template makes 256 tokens at most, and one of each byte.
    bench.scorer.then(rewarding(lambda number: number, read=300))
    await bench.scored("answer 3", "answer 9", protocol=POOLING, max_job_tokens=900)
    skipped = await bench.scored("answer 4", protocol=POOLING, max_job_tokens=900)
    assert skipped.skip_reason == "judge_budget"
    words = skipped.trajectories[0].explanation
    assert "the job's judges have used 600 tokens of 900 (max_job_tokens)" in words
    grant = judge_service_pb2.JudgeGrant(tokens=5)
    answer = await bench.rewarded(group_of("answer 5"), bench.spec(POOLING), grant=grant)
    assert answer.group.skip_reason == "judge_budget"
    assert len(bench.scorer.requests) == 2


async def checked(bench: Bench, *scorers: spec_pb2.Scorer) -> None:
    request = judge_service_pb2.CheckRewardRequest(reward=spec_pb2.RewardSpec(scorers=scorers))
    context: Any = None
    await bench.servicer.CheckReward(request, context)


@pytest.mark.parametrize("status", [401, 403, 405])
async def test_one_that_refuses_key_or_address_is_told_before_a_job_is_made(
    bench: Bench, status: int
) -> None:
    environment = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_ENVIRONMENT)
    bench.scorer.refuses = status
    for protocol in (POOLING, CLASSIFY, 0):
        with pytest.raises(InvalidArgumentError, match=f"scorer refused with HTTP {status}") as got:
            await checked(bench, environment, bench.spec(protocol))
        assert got.value.reason == "JUDGE_MISCONFIGURED"
        assert [each.field for each in got.value.violations] == ["reward.scorers[1].http"]
    # Nobody's group is scored: a reward model is told no message, one's own code nothing.
    assert len(bench.scorer.tried) == 3
    assert bench.scorer.requests == []


@pytest.mark.parametrize("status", [200, 400, 402, 404, 422, 429, 500])
async def test_what_may_come_until_the_first_step_refuses_no_job(bench: Bench, status: int) -> None:
    bench.scorer.refuses = status
    for protocol in (POOLING, CLASSIFY, 0):
        await checked(bench, bench.spec(protocol))
    away = spec_pb2.HttpScorerSpec(base_url="http://127.0.0.1:9")
    await checked(bench, spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_HTTP, http=away))


async def test_of_an_address_that_nobody_named_a_job_learns_no_more_than_that(
    bench: Bench, judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    bench.scorer.refuses = 401
    stranger = JudgeBench(judge, client)
    request = judge_service_pb2.CheckRewardRequest(
        reward=spec_pb2.RewardSpec(scorers=[bench.spec(0)])
    )
    context: Any = None
    with pytest.raises(InvalidArgumentError, match="no answer that can be used") as caught:
        await stranger.servicer.CheckReward(request, context)
    assert "401" not in str(caught.value)
