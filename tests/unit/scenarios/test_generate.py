"""Tasks from tool descriptions: against a scripted model on a real port."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from podium.chat import CallLimits, Endpoint, Price, StructuredChat
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from podium.environments import Tool
from podium.environments.scenarios import load_scenarios, write_scenarios
from podium.environments.scenarios.generate import generate_scenarios
from podium.environments.scenarios.similar import KnownTasks
from support.fake_judge import Behaviour, FakeJudge, completion, fails, fake_judge, refuses, says

TOOLS = [
    Tool("add_note", "Adds a note.", {"type": "object", "properties": {"title": {}}}),
    Tool("search", "Finds notes."),
]
LIMITS = CallLimits(timeout_seconds=30, attempts=2, backoff_seconds=0.001)
WORDS = ("apple", "bread", "candle", "drum", "engine", "feather", "garden", "hammer", "island")


@pytest.fixture
def api() -> Iterator[FakeJudge]:
    with fake_judge() as server:
        yield server


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    # In plain HTTP: no certificate authorities are read.
    async with httpx.AsyncClient(timeout=None, verify=False) as client:
        yield client


def chat(api: FakeJudge, http: httpx.AsyncClient, price: Price | None = None) -> StructuredChat:
    endpoint = Endpoint(api.base_url, "writer", "key")
    return StructuredChat(http, endpoint, limits=LIMITS, price=price, role="generator")


def asked_for(request: dict[str, Any]) -> Counter[int]:
    prompt = request["messages"][1]["content"]
    found = re.findall(r"(\d+) of difficulty (\d)", prompt)
    return Counter({int(level): int(count) for count, level in found})


def task(number: int) -> str:
    """One that is like no other."""
    chosen = [
        WORDS[(number // len(WORDS) ** place) % len(WORDS)] + str(place) for place in range(3)
    ]
    return f"Please remember {' '.join(chosen)}."


def honest(numbers: Iterator[int] | None = None) -> Behaviour:
    """Writes just what is asked for."""
    counting = itertools.count() if numbers is None else numbers

    def behave(request: dict[str, Any]) -> Any:
        tasks = [
            {"task": task(next(counting)), "difficulty": level}
            for level, count in asked_for(request).items()
            for _ in range(count)
        ]
        return completion(json.dumps({"scenarios": tasks}))

    return behave


def edited(behaviour: Behaviour, edit: Any) -> Behaviour:
    def behave(request: dict[str, Any]) -> Any:
        answer = json.loads(behaviour(request).body)["choices"][0]["message"]["content"]
        return completion(json.dumps({"scenarios": edit(json.loads(answer)["scenarios"])}))

    return behave


async def test_tasks_of_every_difficulty_with_splits_and_cost(
    api: FakeJudge, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    api.then(honest())
    made = await generate_scenarios(
        TOOLS, [{"uri": "notes://all"}], 24, chat=chat(api, http, Price(1.0, 10.0))
    )
    assert made.shortfall == ""
    assert made.difficulties == {1: 5, 2: 5, 3: 5, 4: 5, 5: 4}
    held = [s for s in made.scenarios if s.split == "heldout"]
    assert len(held) == 5
    assert {s.data["difficulty"] for s in held} == {1, 2, 3, 4, 5}
    assert made.usage.calls == len(api.requests) == 2
    assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (200, 20)
    assert made.usage.cost == pytest.approx((200 * 1.0 + 20 * 10.0) / 1e6)
    # What is written is what a job reads.
    file = tmp_path / "tasks.jsonl"
    write_scenarios(file, made.scenarios)
    read = [s for split in ("train", "heldout") for s in load_scenarios(str(file), split)]
    assert {s.id: s for s in read} == {s.id: s for s in made.scenarios}


async def test_the_model_is_told_of_tools_resources_and_what_is_there(
    api: FakeJudge, http: httpx.AsyncClient
) -> None:
    api.then(honest())
    await generate_scenarios(
        TOOLS,
        [{"uri": "notes://all", "name": "All"}],
        13,
        chat=chat(api, http),
        custom_instructions="Only about the garden.",
        known=["Write down the shopping list"],
    )
    first, second = (request["messages"][1]["content"] for request in api.requests)
    for text in ('"add_note"', "Finds notes.", "notes://all", "Only about the garden."):
        assert text in first
    assert "- Write down the shopping list" in first
    assert f"- {task(0)}" in second
    asked = api.requests[0]["response_format"]["json_schema"]
    assert asked["name"] == "scenarios"
    assert asked["schema"]["properties"]["scenarios"]["minItems"] == 12
    assert api.authorizations == ["Bearer key", "Bearer key"]


async def test_of_an_answer_the_good_tasks_count(api: FakeJudge, http: httpx.AsyncClient) -> None:
    def spoil(tasks: list[dict[str, Any]]) -> list[Any]:
        return [
            tasks[0],
            {**tasks[0], "task": tasks[0]["task"].upper()},
            {"task": "Call add_note with milk", "difficulty": 1},
            {"task": "short", "difficulty": 1},
            {"task": "A long enough task", "difficulty": 6},
            {"task": "A long enough task", "difficulty": True},
            {"task": None, "difficulty": 1},
            "no task",
        ]

    numbers = itertools.count()
    api.then(edited(honest(numbers), spoil), honest(numbers))
    made = await generate_scenarios(TOOLS, num_scenarios=5, chat=chat(api, http))
    assert len(made.scenarios) == 5
    assert made.refused == {"duplicate": 1, "names_a_tool": 1, "task": 3, "difficulty": 2}
    assert made.difficulties == dict.fromkeys(range(1, 6), 1)
    assert made.usage.calls == 2


@pytest.mark.parametrize(
    ("useless", "complaint"),
    [
        ("I cannot.", "it is no JSON"),
        ("[]", 'it has no list "scenarios"'),
        ('{"scenarios": {}}', 'it has no list "scenarios"'),
        ('{"scenarios": [{"task": "Plant the ', "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
    ],
)
async def test_a_useless_answer_is_sent_back_with_the_complaint(
    api: FakeJudge, http: httpx.AsyncClient, useless: str, complaint: str
) -> None:
    api.then(says(useless), honest())
    made = await generate_scenarios(TOOLS, num_scenarios=3, chat=chat(api, http))
    assert len(made.scenarios) == 3
    assert complaint in api.requests[1]["messages"][-1]["content"]
    assert api.requests[1]["messages"][-2]["content"] == useless[:4000]
    assert made.refused == {"answer": 1}


async def test_json_in_words_or_a_code_block_is_read(
    api: FakeJudge, http: httpx.AsyncClient
) -> None:
    inside = json.dumps({"scenarios": [{"task": task(1), "difficulty": 1}]})
    api.then(refuses("response_format", says(f"Here you are:\n```json\n{inside}\n```")))
    made = await generate_scenarios(TOOLS, num_scenarios=1, chat=chat(api, http))
    assert [(s.data["task"], s.split) for s in made.scenarios] == [(task(1), "train")]


async def test_a_model_that_repeats_itself_is_given_up_and_its_tasks_kept(
    api: FakeJudge, http: httpx.AsyncClient
) -> None:
    same = {"scenarios": [{"task": task(n), "difficulty": n + 1} for n in range(3)]}
    api.then(says(json.dumps(same)))
    made = await generate_scenarios(TOOLS, num_scenarios=10, chat=chat(api, http))
    assert len(made.scenarios) == 3
    assert made.shortfall == "3 rounds in a row gave nothing new"
    assert made.refused["duplicate"] == 9
    assert len(api.requests) == 4


async def test_when_one_difficulty_never_comes_others_fill_its_place(
    api: FakeJudge, http: httpx.AsyncClient
) -> None:
    def easy(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**task, "difficulty": min(task["difficulty"], 4)} for task in tasks]

    api.then(edited(honest(), easy))
    made = await generate_scenarios(TOOLS, num_scenarios=10, chat=chat(api, http))
    assert len(made.scenarios) == 10
    assert made.difficulties[5] == 0
    assert made.shortfall == ""


async def test_what_the_api_suffers_is_borne_or_told(
    api: FakeJudge, http: httpx.AsyncClient
) -> None:
    api.then(fails(429, retry_after="0"), honest())
    assert (await generate_scenarios(TOOLS, num_scenarios=2, chat=chat(api, http))).scenarios
    # Tasks that were paid for are kept when it goes away.
    api.then(honest(), fails(503))
    made = await generate_scenarios(TOOLS, num_scenarios=30, chat=chat(api, http))
    assert len(made.scenarios) == 12
    assert "the generator model cannot be reached: HTTP 503" in made.shortfall
    for status, error in ((503, UnavailableError), (401, FailedPreconditionError)):
        api.then(fails(status))
        with pytest.raises(error, match="generator"):
            await generate_scenarios(TOOLS, num_scenarios=2, chat=chat(api, http))


async def test_a_prompt_that_is_too_long_asks_for_less(
    api: FakeJudge, http: httpx.AsyncClient
) -> None:
    answer = honest()

    def small(request: dict[str, Any]) -> Any:
        if asked_for(request).total() > 6:
            return fails(400, '{"error": "maximum context length exceeded"}')(request)
        return answer(request)

    api.then(small)
    made = await generate_scenarios(TOOLS, num_scenarios=12, chat=chat(api, http))
    assert len(made.scenarios) == 12
    assert made.usage.calls == 3


async def test_a_bound_on_the_cost_is_kept(api: FakeJudge, http: httpx.AsyncClient) -> None:
    api.then(honest())
    made = await generate_scenarios(
        TOOLS, num_scenarios=100, chat=chat(api, http, Price(1e4, 0)), max_cost=1.5
    )
    assert made.usage.cost == pytest.approx(2.0)
    assert made.shortfall == "they have cost 2 of 1.5"
    assert len(made.scenarios) == 24


async def test_nonsense_is_refused_before_anything_is_asked(
    api: FakeJudge, http: httpx.AsyncClient
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await generate_scenarios([], num_scenarios=0, chat=chat(api, http), heldout=1.0)
    assert [v.field for v in caught.value.violations] == ["tools", "num_scenarios", "heldout"]
    assert api.requests == []


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("Add a note about milk", "add a NOTE about milk!", True),
        ("Add a note about milk", "Add a note about eggs", False),
        ("Add 3 and 5", "Add 4 and 7", False),
        ("Find the last note that I wrote about the garden", "Find it", False),
        (
            "Find the last note that I wrote about the garden and read it to me",
            "Find the last note that I wrote about the garden and read it to me now",
            True,
        ),
    ],
)
def test_tasks_are_alike_by_their_words(one: str, other: str, alike: bool) -> None:
    assert KnownTasks([one]).add(other) is not alike
