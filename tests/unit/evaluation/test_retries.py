"""Models behind a busy API: asked again, and what was never answered counts for nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from podium.core import backoff
from podium.environments import Environment, Message, Observation, Scenario, StepResult, user
from podium.sdk.evaluation import Attempt, ChatModel, compare, run_local, summarise
from podium.sdk.evaluation.retries import NotAnsweredError, Retries
from support.fake_judge import Answer, Behaviour, FakeJudge, completion, fails, fake_judge

QUICK = Retries(attempts=9, first_seconds=0.001, longest_seconds=0.005)


@pytest.fixture
def api() -> Iterator[FakeJudge]:
    with fake_judge() as running:
        yield running


def says(text: str) -> Behaviour:
    return lambda request: completion(text)


class Six(Environment):
    """Six turns; right when the last word was."""

    name = "six"

    def scenarios(self, split: str) -> list[Scenario]:
        return [Scenario(f"s{n}") for n in range(40)]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        self.turns = 0
        return Observation([user("Say yes.")])

    async def step(self, action: Message) -> StepResult:
        self.turns += 1
        ended = self.turns == 6
        seen = Observation([] if ended else [user("Again.")])
        return StepResult(seen, reward=float(ended and action.content == "yes"), terminated=ended)


async def ask(api: FakeJudge, retries: Retries = QUICK) -> Message:
    async with httpx.AsyncClient(base_url=api.base_url) as client:
        return await ChatModel(0, client, "m", retries=retries).act(Observation([user("?")]))


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
async def test_a_busy_api_is_asked_again(api: FakeJudge, status: int) -> None:
    api.then(fails(status), fails(status), says("yes"))
    assert (await ask(api)).content == "yes"
    assert len(api.requests) == 3
    assert api.requests[0] == api.requests[2]


async def test_an_api_that_hangs_up_is_asked_again() -> None:
    async with httpx.AsyncClient(base_url="http://127.0.0.1:9") as client:
        with pytest.raises(NotAnsweredError, match=r"ConnectError.*asked 9 times"):
            await ChatModel(0, client, "m", retries=QUICK).act(Observation([user("?")]))


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_it_is_not_asked_before_it_said(
    api: FakeJudge, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = Retries(attempts=2, first_seconds=0.0, longest_seconds=60)
    least = 0.1
    now = datetime(2026, 11, 1, tzinfo=UTC).timestamp() - least
    # A date has whole seconds.
    monkeypatch.setattr(backoff, "time", SimpleNamespace(time=lambda: now))
    until = format_datetime(datetime(2026, 11, 1, tzinfo=UTC), usegmt=True)
    value = {"seconds": str(least), "date": until}[form]
    api.then(fails(429, retry_after=value), says("yes"))
    assert (await ask(api, patient)).content == "yes"
    first, second = api.arrivals
    assert second - first >= least


@pytest.mark.parametrize(
    "value", ["86400", "1e999", "-5", "nan", "soon", "Wed, 21 Oct 2099 07:28:00 GMT"]
)
async def test_what_it_asks_for_is_bounded(api: FakeJudge, value: str) -> None:
    api.then(fails(503, retry_after=value), says("yes"))
    assert (await ask(api)).content == "yes"


@pytest.mark.parametrize(
    ("behaviour", "times"),
    [
        (fails(429, "slow down"), 9),
        (fails(500), 9),
        (fails(401, "no such key"), 1),
        (fails(404, "no such model"), 1),
        (fails(400, "max_tokens is not supported"), 1),
        (lambda _: Answer(body=b"<html>"), 1),
        (lambda _: Answer(body=b'{"choices": []}'), 1),
        (lambda _: Answer(body=b'{"choices": [{"message": {"tool_calls": [{}]}}]}'), 1),
        (lambda _: Answer(body=b'{"choices": [{"message": "yes"}]}'), 1),
    ],
)
async def test_what_was_never_answered_is_no_failure_of_the_model(
    api: FakeJudge, behaviour: Behaviour, times: int
) -> None:
    api.then(behaviour)
    async with httpx.AsyncClient(base_url=api.base_url) as client:
        (found,) = await run_local(
            Six, {}, [Scenario("s")], lambda seed: ChatModel(seed, client, "m", retries=QUICK)
        )
    assert len(api.requests) == times
    assert found.unanswered
    assert found.failure.startswith("NotAnsweredError: the model's API ")


async def test_a_conversation_that_became_too_long_is_the_models_own(api: FakeJudge) -> None:
    api.then(says("no"), fails(400, "This model's maximum context length is 9 tokens"))
    async with httpx.AsyncClient(base_url=api.base_url) as client:
        (found,) = await run_local(
            Six, {}, [Scenario("s")], lambda seed: ChatModel(seed, client, "m", retries=QUICK)
        )
    assert not found.unanswered
    assert "maximum context length" in found.failure
    assert summarise([found]).success == 0


async def test_a_third_of_requests_refused_costs_no_attempt(api: FakeJudge) -> None:
    chance = random.Random(7)

    def sometimes(request: dict[str, Any]) -> Answer:
        busy = chance.random() < 0.3
        return Answer(429, b"{}") if busy else completion("yes")

    api.then(sometimes)
    async with httpx.AsyncClient(base_url=api.base_url) as client:
        found = await run_local(
            Six,
            {},
            Six().scenarios("train")[:20],
            lambda seed: ChatModel(seed, client, "m", retries=QUICK),
        )
    assert summarise(found).success == 1.0
    assert len(api.requests) > 20 * 6
    assert not any(each.failure for each in found)
    assert json.dumps(api.requests[0])


def attempt(scenario: str, number: int, reward: float, **more: Any) -> Attempt:
    return Attempt(scenario, number, reward, True, 1, **more)


def test_the_numbers_leave_out_what_was_never_answered() -> None:
    silent = {"failure": "NotAnsweredError: 429", "unanswered": True}
    found = [
        attempt("a", 0, 1.0),
        attempt("a", 1, 0.0, **silent),
        attempt("b", 0, 1.0),
        attempt("c", 0, 0.0, **silent),
        attempt("d", 0, 0.0, failure="RuntimeError: broke"),
    ]
    numbers = summarise(found)
    assert (numbers.attempts, numbers.scenarios, numbers.unanswered, numbers.failed) == (3, 3, 2, 1)
    assert numbers.success == pytest.approx(2 / 3)
    assert numbers.reward == pytest.approx(2 / 3)
    base = [attempt(name, 0, 0.0) for name in "abcd"]
    assert compare(base, found).scenarios == 3
    with pytest.raises(ValueError, match="never answered"):
        summarise([found[1]])
