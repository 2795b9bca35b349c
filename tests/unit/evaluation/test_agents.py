"""Episodes of agents without a policy: in this process, and over an OpenAI-compatible API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from podium.core.errors import UnavailableError
from podium.environments import (
    Agent,
    Environment,
    Message,
    Observation,
    Scenario,
    Scripted,
    StepResult,
    Tool,
    tool_result,
    user,
)
from podium.sdk.evaluation import ChatModel, run_local
from support.fake_judge import Answer, Behaviour, FakeJudge, fails, fake_judge


class Guess(Environment):
    """The answer is in the scenario; `boom` raises."""

    name = "guess"

    def scenarios(self, split: str) -> list[Scenario]:
        return [Scenario(str(n), {"answer": n}) for n in range(4)]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        self.answer = scenario.data["answer"]
        return Observation([user("Guess.")], tools=[Tool("guess", "Say it.", {"type": "object"})])

    async def step(self, action: Message) -> StepResult:
        if action.content == "boom":
            raise RuntimeError("the environment broke")
        if action.tool_calls:
            call = action.tool_calls[0]
            return StepResult(Observation([tool_result(call, "noted")]))
        right = action.content == str(self.answer)
        return StepResult(Observation([user("no")]), reward=float(right), terminated=right)


class Counts(Agent):
    """Says 0, 1, 2, …"""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.next = 0

    async def act(self, observation: Observation) -> Message:
        self.next += 1
        return Message("assistant", str(self.next - 1))


async def test_every_scenario_is_played_by_fresh_agents() -> None:
    seen = []
    found = await run_local(
        Guess, {}, Guess().scenarios("train"), Counts, attempts=2, max_turns=3, done=seen.append
    )
    assert [(each.scenario_id, each.attempt) for each in found] == [
        (str(n), k) for n in range(4) for k in range(2)
    ]
    assert [each.turns for each in found[::2]] == [1, 2, 3, 3]
    assert [each.terminated for each in found[::2]] == [True, True, True, False]
    assert sorted(map(id, seen)) == sorted(map(id, found))


async def test_what_is_raised_fails_one_attempt() -> None:
    def agent(seed: int) -> Agent:
        return Scripted(["boom" if seed == 8 else "0"], seed)

    found = await run_local(Guess, {}, Guess().scenarios("train")[:1], agent, attempts=2, seed=7)
    assert [each.failure for each in found] == ["", "RuntimeError: the environment broke"]
    assert [each.succeeded() for each in found] == [True, False]


@pytest.fixture
def api() -> Iterator[FakeJudge]:
    with fake_judge() as running:
        yield running


def says(**message: Any) -> Behaviour:
    body = {"choices": [{"message": {"role": "assistant", **message}}]}
    return lambda request: Answer(body=json.dumps(body).encode())


async def test_a_chat_model_holds_the_conversation(api: FakeJudge) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "guess", "arguments": "{}"}}
    api.then(says(content=None, tool_calls=[call]), says(content="2"))
    key = {"Authorization": "Bearer k"}
    async with httpx.AsyncClient(base_url=api.base_url, headers=key) as client:
        found = await run_local(
            Guess,
            {},
            Guess().scenarios("train")[2:3],
            lambda seed: ChatModel(seed, client, "m", temperature=0.3, max_tokens=9),
            seed=5,
        )
    assert [each.terminated for each in found] == [True]
    first, second = api.requests
    assert api.authorizations == ["Bearer k"] * 2
    assert first["messages"] == [{"role": "user", "content": "Guess."}]
    options = {"model": "m", "temperature": 0.3, "max_tokens": 9, "seed": 5}
    assert options.items() <= first.items()
    assert first["tools"][0]["function"]["name"] == "guess"
    assert second["messages"][1]["tool_calls"] == [call]
    assert second["messages"][2] == {"role": "tool", "content": "noted", "tool_call_id": "c1"}


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        (fails(401, "no such key"), "answered 401: no such key"),
        (lambda _: Answer(body=b"<html>"), "gave no answer"),
        (lambda _: Answer(body=b'{"choices": []}'), "gave no answer"),
    ],
)
async def test_an_api_that_does_not_answer_fails_the_attempt(
    api: FakeJudge, behaviour: Behaviour, text: str
) -> None:
    api.then(behaviour)
    async with httpx.AsyncClient(base_url=api.base_url) as client:
        with pytest.raises(UnavailableError, match=text):
            await ChatModel(0, client, "m").act(Observation([user("Guess.")]))
