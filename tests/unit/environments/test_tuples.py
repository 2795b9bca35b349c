"""S4: a class whose step gives (state, reward, done, info) runs as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError
from podium.environments import Scenario, from_tuples
from podium.environments.catalog import load_class
from podium.environments.serving.convert import struct
from podium.environments.serving.session import LocalSession
from podium.types.v1 import trajectory_pb2 as pb
from support.environments import check_contract
from support.tutorial_environment import Dice, InboxEnvironment


def parse(reply: str, state: dict[str, Any]) -> dict[str, Any]:
    """As the tutorial's agent reads replies."""
    if state["search_results"]:
        return {"type": "select", "number": int(reply[-1])}
    return {"type": "search"}


Inbox = from_tuples(
    InboxEnvironment,
    prompt=lambda state: f"Find: {state['query']} {state['search_results']}",
    action=parse,
    scenarios={
        "train": [Scenario("one", {"query": "invoice", "answer": 1})],
        "heldout": [Scenario("two", {"query": "party", "answer": 0})],
    },
)


def say(text: str) -> pb.Message:
    return pb.Message(role=pb.ROLE_ASSISTANT, content=text)


async def begun(kind: Any, **data: object) -> LocalSession:
    session = LocalSession(kind())
    await session.reset(pb.Scenario(id="s", data=struct(data)), 7)
    return session


async def test_s4_a_class_with_tuples_plays_an_episode_as_it_is() -> None:
    session = LocalSession(Inbox())
    first = await session.reset(pb.Scenario(id="two", data=struct({"query": "party"})), 7)
    assert first.messages[0].content == "Find: party []"
    assert json.loads(json.dumps(dict(first.state)["query"])) == "party"
    searched = await session.step(say("search"))
    assert searched.reward == pytest.approx(0.27)
    assert not searched.terminated
    assert searched.info["found"] == 2
    assert searched.observation.messages[0].content == "Find: party [0, 1]"
    chosen = await session.step(say("select 1"))
    assert (chosen.reward, chosen.terminated, chosen.metrics["success"]) == (1.0, True, 1.0)
    assert chosen.observation.state["step"] == 2
    assert not chosen.observation.messages
    await session.close()


async def test_s4_the_adapted_class_keeps_the_contract_in_every_scenario() -> None:
    assert Inbox.name == "inbox_environment"
    assert Inbox.description == "Find the email."
    await check_contract(Inbox, ["search", "select 1"])


async def test_s4_a_right_answer_is_needed_for_success() -> None:
    session = await begun(Inbox)
    await session.step(say("search"))
    assert (await session.step(say("select 0"))).metrics["success"] == 0.0


async def test_s4_a_class_without_coroutines_gets_the_seed_and_shows_its_state_as_json() -> None:
    session = LocalSession(load_class("support.tutorial_environment:Dice")())
    first = await session.reset(pb.Scenario(id="train-0"), 9)
    assert first.messages[0].content == "3"
    assert first.state["state"] == 3
    last = await session.step(say(" throw\n"))
    assert (last.reward, last.terminated, last.metrics["success"]) == (0.5, True, 0.0)
    assert last.observation.state["state"] == 9


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("five", "step returned a tuple of 5; allowed is"),
        ("none", "step returned NoneType"),
        ("done", "step returned done=1; allowed are True and False"),
        ("reward", "step returned reward='much'; allowed are finite numbers"),
        ("nan", "step returned reward='nan'; allowed are finite numbers"),
    ],
)
async def test_s4_a_result_of_another_shape_is_named(said: str, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        await (await begun(from_tuples(Dice))).step(say(said))


async def test_a_scenario_that_the_class_does_not_take_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"InboxEnvironment does not take it.*'sender'"):
        await begun(Inbox, sender="ann")


async def test_the_class_is_closed_if_it_can_be() -> None:
    environment = Inbox()
    await environment.reset(Scenario("one"), 1)
    await environment.close()
    assert environment._inner.closed == 1
    await from_tuples(Dice)().close()
