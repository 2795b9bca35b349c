"""An environment's failure is one attempt's; the others of its group end as they would have."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import ClassVar

import pytest
from podium.core.errors import (
    DataLossError,
    DeadlineExceededError,
    InvalidArgumentError,
    PodiumError,
    RequestCancelledError,
    UnavailableError,
)
from podium.core.skip_reasons import NO_ENVIRONMENT_ANSWERS
from podium.environments import Message, Observation, Scenario, StepResult, catalog
from podium.environments.serving.convert import struct
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.adapters import environments as environments_module
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain import metrics
from podium_rollout.domain.group import GroupRunner
from support.guess_environment import Guess
from support.loop_clock import LoopClock
from support.rollout import PolicyDouble, group_request, script
from support.waiting import eventually


async def collect(
    request: rollout_pb.CollectGroupRequest, policy: PolicyDouble
) -> dict[int, pb.Trajectory]:
    collector = GroupRunner(Environments(), {"default": policy}, max_groups=1)
    return {t.attempt: t async for t in collector.collect(request)}


def good(trajectory: pb.Trajectory) -> bool:
    return (
        trajectory.stop_reason == pb.STOP_REASON_TERMINATED
        and trajectory.environment_reward == 1.0
        and not trajectory.HasField("failure")
    )


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ("raise", "RuntimeError", "the wheel came off"),
        ("times out", "TimeoutError", "the database of the environment is slow"),
        ("hang", "TimeoutError", "the environment did not answer within 60 s"),
        ("nan", "ValueError", "reward is nan; allowed are finite numbers"),
        ("inf", "ValueError", "reward is inf; allowed are finite numbers"),
        ("-inf", "ValueError", "reward is -inf; allowed are finite numbers"),
        ("nan metric", "ValueError", "metric 'x' is nan; allowed are finite numbers"),
        ("not json", "TypeError", "Object of type object is not JSON serializable"),
        ("wrong type", "TypeError", "step returned dict, not StepResult"),
    ],
)
async def test_a_step_that_breaks_fails_its_attempt_alone(said: str, kind: str, words: str) -> None:
    request = group_request(attempts=3, step_timeout_seconds=60)
    policy, clock, hung = PolicyDouble(), LoopClock(), Guess.hung
    policy.replies = script(request, {1: ["1", said]})
    collecting = asyncio.create_task(collect(request, policy))
    if said == "hang":
        # The others' steps have so long too.
        await eventually(lambda: Guess.hung == hung + 1 and Guess.open == 1)
        clock.advance(60)
    found = await collecting
    assert good(found[0])
    assert good(found[2])
    broken = found[1]
    assert broken.stop_reason == pb.STOP_REASON_FAILED
    assert (broken.failure.type, broken.failure.message) == (kind, words)
    assert kind in broken.failure.traceback
    assert not broken.HasField("environment_reward")
    # What it did until then is kept, for people to read.
    assert [m.content for m in broken.histories[0].messages][-1] == said
    assert len(broken.histories[0].tokens.spans) == 2


async def test_the_traceback_leads_to_the_line_and_is_bounded() -> None:
    found = await collect(group_request(), PolicyDouble(otherwise="raise"))
    assert 'raise RuntimeError("the wheel came off")' in found[0].failure.traceback
    assert len(found[0].failure.traceback.encode()) <= 16 * 1024


class Flaky(Guess):
    """The second reset of the process fails."""

    resets: ClassVar[itertools.count[int]]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        observation = await super().reset(scenario, seed)
        if next(Flaky.resets) == 1:
            raise KeyError("no such board" + "\N{SNOWMAN}" * 20_000)
        return observation


async def test_a_reset_that_raises_fails_its_attempt_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Flaky, "resets", itertools.count(), raising=False)
    monkeypatch.setattr(catalog, "load_class", lambda path: Flaky)
    found = await collect(group_request(attempts=3), PolicyDouble())
    failed = [t for t in found.values() if t.stop_reason == pb.STOP_REASON_FAILED]
    assert len(failed) == 1
    assert failed[0].failure.type == "KeyError"
    assert len(failed[0].failure.traceback.encode()) <= 16 * 1024
    assert not failed[0].histories
    assert sum(map(good, found.values())) == 2


async def test_a_reset_that_hangs_fails_in_time() -> None:
    request = group_request(options={"reset": "hang"}, step_timeout_seconds=0.1)
    found = await collect(request, PolicyDouble())
    assert found[0].failure.message == "the environment did not answer within 0.1 s"


@pytest.mark.parametrize("close", ["raise", "hang"])
async def test_a_close_that_breaks_does_not_take_the_outcome(
    close: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(environments_module, "_CLOSE_SECONDS", 0.05)
    with caplog.at_level(logging.WARNING):
        found = await collect(group_request(attempts=2, options={"close": close}), PolicyDouble())
    assert all(map(good, found.values()))
    assert len(found) == 2
    assert "an environment could not be closed" in caplog.text


async def test_options_that_are_refused_end_the_group_by_field() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await collect(group_request(2, options={"tool": True}), PolicyDouble())
    assert caught.value.violations[0].field == "environment.config.tool"


async def test_a_scenario_that_is_refused_ends_the_group_by_field() -> None:
    request = group_request(2)
    request.environment.name = "email_search"
    request.environment.config.Clear()
    request.scenario.data.CopyFrom(struct({"question": "?"}))
    with pytest.raises(InvalidArgumentError) as caught:
        await collect(request, PolicyDouble())
    assert caught.value.violations[0].field == "scenario.data.inbox"


class Misleading(Guess):
    """Begins with an error that the controller would take for something of its own."""

    raises: ClassVar[PodiumError]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        await super().reset(scenario, seed)
        raise Misleading.raises


@pytest.mark.parametrize(
    "error",
    [
        DataLossError("the board is damaged"),
        DeadlineExceededError("the board is slow"),
        RequestCancelledError("nobody plays"),
    ],
)
async def test_a_reset_that_says_what_is_no_refusal_fails_its_attempts(
    error: PodiumError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Misleading, "raises", error, raising=False)
    monkeypatch.setattr(catalog, "load_class", lambda path: Misleading)
    found = await collect(group_request(2), PolicyDouble())
    assert {t.failure.message for t in found.values()} == {error.message}
    assert {t.stop_reason for t in found.values()} == {pb.STOP_REASON_FAILED}


class Offline(Guess):
    """Its own back end is away in every step."""

    async def step(self, action: Message) -> StepResult:
        raise UnavailableError("the game server restarts")


async def test_an_environment_that_is_away_ends_the_group_for_a_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog, "load_class", lambda path: Offline)
    with pytest.raises(UnavailableError, match="the game server restarts") as caught:
        await collect(group_request(2), PolicyDouble())
    assert caught.value.reason == NO_ENVIRONMENT_ANSWERS


class Losing(Guess):
    """Its back end is away in every step that says "lose", or in the first that says "once"."""

    losses: ClassVar[int]

    async def step(self, action: Message) -> StepResult:
        Losing.losses += action.content in ("lose", "once")
        if action.content == "lose" or (action.content == "once" and Losing.losses == 1):
            raise UnavailableError("the game server restarts")
        return await super().step(Message(**{**vars(action), "content": "4"}))


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Losing, "losses", 0, raising=False)
    monkeypatch.setattr(catalog, "load_class", lambda path: Losing)


async def test_an_environment_that_is_lost_twice_costs_its_attempt_alone(losing: None) -> None:
    request = group_request(attempts=3)
    failed = metrics.EPISODES.labels(metrics.label_of(request.environment), "failed")
    before = failed._value.get()
    found = await collect(request, PolicyDouble(script(request, {1: ["lose"]})))
    broken = found.pop(1)
    assert len(found) == 2
    assert all(map(good, found.values()))
    assert broken.stop_reason == pb.STOP_REASON_FAILED
    failure = broken.failure
    assert (failure.type, failure.message) == ("UnavailableError", "the game server restarts")
    # What it did until then is kept.
    assert [m.content for m in broken.histories[0].messages][-1] == "lose"
    assert Losing.losses == 2
    assert failed._value.get() == before + 1


async def test_an_attempt_that_lost_its_environment_begins_again_and_is_the_same(
    losing: None,
) -> None:
    request = group_request(attempts=3)
    found = await collect(request, PolicyDouble(script(request, {1: ["once"]})))
    assert len(found) == 3
    assert all(map(good, found.values()))
    assert Losing.losses == 2
    (history,) = found[1].histories
    assert len(history.tokens.spans) == 1
