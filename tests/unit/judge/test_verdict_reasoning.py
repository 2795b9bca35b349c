"""Judges that reason, or put their answer elsewhere, are read without a second call."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from podium_judge.domain import verdict
from support.fake_judge import Answer, Behaviour, FakeJudge, shown
from support.judging import JudgeBench, group_of, rewards


def scores_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"attempt_id": label, "explanation": "so", "score": int(text.split()[-1][:1]) / 10}
        for label, text in shown(request).items()
    ]


def message(make: Any, **usage: Any) -> Behaviour:
    """An answer whose message is what `make` makes of the entries."""

    def behave(request: dict[str, Any]) -> Answer:
        body = {
            "choices": [{"finish_reason": "stop", "message": make(scores_of(request))}],
            "usage": usage or {"prompt_tokens": 100, "completion_tokens": 10},
        }
        return Answer(body=json.dumps(body).encode())

    return behave


def dumped(entries: list[dict[str, Any]]) -> str:
    return json.dumps({"scores": entries})


def said(before: str, after: str = "") -> Any:
    return lambda entries: {"content": f"{before}{dumped(entries)}{after}"}


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "score", "arguments": arguments}}


def numerals(entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {"content": dumped([{**each, "score": str(each["score"])} for each in entries])}


DRAFT = '{"scores": [{"attempt_id": "1", "explanation": "?", "score": 0.5}]}'

SHAPES = {
    "thinking": said(f"<think>\nFirst {{see}} {DRAFT}, no.\n</think>\n\n"),
    "thinking without its beginning": said(f"Let me see: {DRAFT}\n</think>"),
    "a draft and then the answer": said(f"My draft: {DRAFT}\nWith [1] and {{2}} compared: "),
    "prose before a fence": said("Here are the scores:\n```json\n", "\n```\nI hope this helps."),
    "a tool call": lambda entries: {"content": None, "tool_calls": [call(dumped(entries))]},
    "a tool call with an object": lambda entries: {
        "content": "",
        "tool_calls": [call({"scores": entries})],
    },
    "parts": lambda entries: {
        "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": DRAFT}]},
            {"type": "text", "text": dumped(entries)},
        ]
    },
    "a bare list": lambda entries: {"content": json.dumps(entries)},
    "numerals": numerals,
    "reasoning alone": lambda entries: {
        "content": "",
        "reasoning_content": f"Well… {dumped(entries)}",
    },
    "reasoning under its other name": lambda entries: {
        "content": None,
        "reasoning": dumped(entries),
    },
    "an object": lambda entries: {"content": {"scores": entries}},
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_an_answer_is_found_wherever_it_stands_with_one_paid_call(
    judge: FakeJudge, client: httpx.AsyncClient, shape: str
) -> None:
    bench = JudgeBench(judge, client)
    judge.then(message(SHAPES[shape]))
    answer = await bench.ask(group_of("I say 3", "I say 9"))
    assert rewards(answer.group) == [0.3, 0.9]
    assert answer.usage.calls == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f"<think>{DRAFT.replace('1', '2')}</think> {DRAFT}", "attempts without a score: 2"),
        ('[{"attempt_id": "1", "score": 0.1}, {"attempt_id": "1", "score": 0.2}]', "twice"),
        ('{"scores": [], "scores": [{"attempt_id": "1", "score": 0.5}]}', "same key twice"),
        ('{"scores": [{"attempt_id": "1", "score": NaN}]}', "NaN is not a JSON number"),
        ('{"scores": [{"attempt_id": "1", "score": "NaN"}]}', "is not a number"),
        ('{"scores": [{"attempt_id": "1", "score": "nine"}]}', "is not a number"),
        ('{"scores": [{"attempt_id": "1", "score": "1.5"}]}', "1.5; allowed is 0 to 1"),
        ('{"scores": [{"attempt_id": "1", "score": 1e999}]}', "inf; allowed is 0 to 1"),
        (f'{{"scores": [{{"attempt_id": "1", "score": {10**400}}}]}}', "inf; allowed is 0 to 1"),
        ('{"scores": {"1": 0.5, "2": 0.5}}', "no list `scores`"),
        ('{"score": 0.5}', "no list `scores`"),
        ("I would rather not.", "not one JSON object"),
        ("", "not one JSON object"),
        ('{"a":' * 5000, "not one JSON object"),
    ],
)
def test_what_is_wrong_stays_wrong(text: str, complaint: str) -> None:
    with pytest.raises(verdict.VerdictError, match=complaint):
        verdict.parse(text, ["1", "2"])


def test_a_whole_draft_never_stands_for_a_broken_answer() -> None:
    whole = [{"attempt_id": label, "explanation": "", "score": 0.5} for label in "12"]
    with pytest.raises(verdict.VerdictError, match="without a score: 2"):
        verdict.parse(f"<think>{json.dumps({'scores': whole})}</think>{DRAFT}", ["1", "2"])


def test_an_explanation_is_text_that_can_be_sent() -> None:
    text = r'{"scores": [{"attempt_id": "1", "explanation": "a\ud800b\u0000", "score": 0.5}]}'
    (score,) = verdict.parse(text, ["1"])
    assert score.explanation == "a\ufffdb\ufffd"


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 1e999, "completion_tokens": 7}, (10**12, 7)),
        ({"prompt_tokens": 2**80, "completion_tokens": "8"}, (10**12, 8)),
        ({"prompt_tokens": -5, "completion_tokens": 9}, (0, 9)),
        ({"prompt_tokens": [], "completion_tokens": float("nan"), "total_tokens": 3}, None),
        ({"total_tokens": 3}, None),
    ],
)
async def test_what_an_api_says_of_tokens_is_bounded_and_else_estimated(
    judge: FakeJudge,
    client: httpx.AsyncClient,
    usage: dict[str, Any],
    counted: tuple[int, int] | None,
) -> None:
    bench = JudgeBench(judge, client)
    judge.then(message(said(""), **usage))
    answer = await bench.ask(group_of("I say 3", "I say 9"))
    told = (answer.usage.prompt_tokens, answer.usage.completion_tokens)
    if counted is None:
        # Three bytes a token.
        prompt = sum(len(each["content"]) for each in judge.requests[0]["messages"])
        assert prompt / 3 < told[0] < prompt / 2
        assert 30 < told[1] < 100
    else:
        assert told == counted
