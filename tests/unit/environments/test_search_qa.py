from __future__ import annotations

import json
from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError
from podium.core.tool_calls import parse_tool_calls
from podium.environments import Message, Observation, Scenario, StepResult, ToolCall, play
from podium.environments.search_qa import SearchQa, environment
from podium.environments.search_qa.actions import MOST_CALLS
from podium.environments.search_qa.corpus import questions
from podium.environments.serving.convert import message_from_pb, struct
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_judge.domain.scores import Score
from podium_judge.domain.weighted import WeightedScorer
from support.environments import check_contract

SCENARIOS = SearchQa().scenarios("train")
ONE_HOP = next(s for s in SCENARIOS if len(s.data["documents"]) == 1)
TWO_HOPS = next(s for s in SCENARIOS if len(s.data["documents"]) == 2)
FULL_NAME = next(s for s in SCENARIOS if len(s.data["answer"].split()) == 2)


def call(name: str, arguments: Any, number: int = 0) -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(f"call_{number}", name, text)


def calls(*some: ToolCall) -> Message:
    return Message("assistant", tool_calls=some)


def say(text: str) -> Message:
    return Message("assistant", text)


def look_up(scenario: Scenario) -> ToolCall:
    return call("search", {"query": f"{scenario.data['documents'][-1]} town river born"})


async def episode(scenario: Scenario, *actions: Message, **config: Any) -> list[StepResult]:
    running = SearchQa(config)
    await running.reset(scenario, seed=1)
    return [await running.step(action) for action in actions]


def text_of(observation: Observation) -> str:
    return "\n".join(message.content for message in observation.messages)


async def test_reset_asks_the_question_and_offers_the_tools() -> None:
    observation = await SearchQa().reset(ONE_HOP, seed=1)
    assert text_of(observation).endswith(f"Question: {ONE_HOP.data['question']}")
    assert [tool.name for tool in observation.tools] == ["search", "answer"]
    assert all(tool.parameters["required"] for tool in observation.tools)
    assert observation.state == {"question": ONE_HOP.data["question"], "results": [], "step": 0}


async def test_without_tools_the_actions_are_explained_as_text() -> None:
    observation = await SearchQa({"tools": False}).reset(ONE_HOP, seed=1)
    assert observation.tools == ()
    assert "search: <words>" in text_of(observation)
    assert "answer: <text>" in text_of(observation)


@pytest.mark.parametrize("as_text", [False, True])
async def test_a_good_episode_earns_one(as_text: bool) -> None:
    actions = [calls(look_up(ONE_HOP)), calls(call("answer", {"text": ONE_HOP.data["answer"]}))]
    if as_text:
        words = json.loads(look_up(ONE_HOP).arguments_json)["query"]
        actions = [say(f"search: {words}"), say(f"Answer: {ONE_HOP.data['answer']}")]
    first, second = await episode(ONE_HOP, *actions)
    assert not first.terminated
    assert first.reward == pytest.approx(environment.VALID_REWARD + environment.FOUND_REWARD)
    assert first.observation.messages[0].role == ("user" if as_text else "tool")
    assert first.observation.tools
    assert second.terminated
    assert first.reward + second.reward == pytest.approx(1.0)
    assert second.metrics == {
        "success": 1.0,
        "f1": 1.0,
        "found": 1.0,
        "valid_format": 1.0,
        "turns": 2.0,
    }


async def test_half_an_answer_earns_less_than_half() -> None:
    search, half = await episode(
        FULL_NAME,
        calls(look_up(FULL_NAME)),
        calls(call("answer", {"text": FULL_NAME.data["answer"].split()[0]})),
    )
    assert half.metrics["f1"] == pytest.approx(2 / 3)
    assert half.metrics["success"] == 0.0
    assert 0.3 < search.reward + half.reward < 0.5
    (none,) = await episode(FULL_NAME, calls(call("answer", {"text": ""})))
    assert none.terminated
    assert none.reward == environment.VALID_REWARD


async def test_the_first_document_of_two_hops_is_not_yet_what_was_looked_for() -> None:
    first, second, third = await episode(
        TWO_HOPS,
        calls(call("search", {"query": TWO_HOPS.data["question"]})),
        calls(look_up(TWO_HOPS)),
        calls(look_up(TWO_HOPS)),
    )
    assert TWO_HOPS.data["documents"][0] in text_of(first.observation)
    assert first.metrics["found"] == 0.0
    assert first.reward == environment.VALID_REWARD
    assert second.metrics["found"] == 1.0
    assert second.reward == environment.FOUND_REWARD
    assert third.reward == 0.0


async def test_parallel_calls_are_answered_each_by_its_own_result() -> None:
    names = [scenario.data["documents"][0] for scenario in SCENARIOS[:3]]
    (result,) = await episode(
        ONE_HOP,
        calls(
            *(call("search", {"query": name}, n) for n, name in enumerate(names)),
            call("fetch", {}, 3),
        ),
    )
    messages = result.observation.messages
    assert [m.role for m in messages] == ["tool"] * 4
    assert [m.tool_call_id for m in messages] == ["call_0", "call_1", "call_2", "call_3"]
    assert [m.name for m in messages] == ["search", "search", "search", "fetch"]
    for name, message in zip(names, messages[:3], strict=True):
        assert name in message.content
    assert "no tool 'fetch'" in messages[3].content
    assert result.metrics["valid_format"] == 0.0


async def test_what_follows_an_answer_is_not_done() -> None:
    (result,) = await episode(
        ONE_HOP,
        calls(call("answer", {"text": "wrong"}), call("answer", {"text": ONE_HOP.data["answer"]})),
    )
    assert result.terminated
    assert result.metrics["success"] == 0.0
    assert result.info["result"] == "wrong"


async def test_too_many_calls_are_refused_each_by_itself() -> None:
    (result,) = await episode(
        ONE_HOP, calls(*(call("search", {"query": "town"}, n) for n in range(MOST_CALLS + 5)))
    )
    refused = ["at most" in message.content for message in result.observation.messages]
    assert refused == [False] * MOST_CALLS + [True] * 5
    assert result.reward == environment.INVALID_REWARD


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (call("fetch", {"query": "x"}), "no tool 'fetch'; there are search and answer"),
        (call("", {"query": "x"}), "no tool ''"),
        (call("search", "{query: x}"), '{"query": "a text"}'),
        (call("search", ""), '{"query": "a text"}'),
        (call("search", '"x"'), '{"query": "a text"}'),
        (call("search", "[]"), '{"query": "a text"}'),
        (call("search", "null"), '{"query": "a text"}'),
        (call("search", {"text": "x"}), '{"query": "a text"}'),
        (call("search", {"query": 3}), '{"query": "a text"}'),
        (call("answer", {"text": ["x"]}), '{"text": "a text"}'),
        (call("answer", "[" * 100_000), '{"text": "a text"}'),
    ],
)
async def test_a_wrong_call_is_told_and_costs(wrong: ToolCall, told: str) -> None:
    bad, good = await episode(ONE_HOP, calls(wrong), calls(look_up(ONE_HOP)))
    (message,) = bad.observation.messages
    assert message.role == "tool"
    assert message.tool_call_id == wrong.id
    assert told in message.content
    assert len(message.content) < 300
    assert bad.reward == environment.INVALID_REWARD < 0
    assert not bad.terminated
    assert bad.metrics["valid_format"] == 0.0
    assert good.metrics["valid_format"] == 0.5


@pytest.mark.parametrize(
    "reply", ["", "Paris", "I would search: x", "select: 3", '<tool_call>{"name": </tool_call>']
)
async def test_a_text_without_an_action_is_told_and_costs(reply: str) -> None:
    message = message_from_pb(parse_tool_calls(reply))
    (result,) = await episode(ONE_HOP, message)
    assert result.reward == environment.INVALID_REWARD
    assert "search: <words>" in text_of(result.observation)
    assert result.observation.messages[0].role == "user"
    assert not result.terminated


async def test_mistakes_of_one_turn_are_paid_for_once() -> None:
    (result,) = await episode(ONE_HOP, calls(*(call("fetch", {}, n) for n in range(5))))
    assert result.reward == environment.INVALID_REWARD


async def test_a_search_that_finds_nothing_says_so() -> None:
    nothing, hostile = await episode(
        ONE_HOP, calls(call("search", {"query": "zebra"})), say('search: " OR 1=1 --')
    )
    assert text_of(nothing.observation) == "No document has any of these words."
    assert hostile.metrics["valid_format"] == 1.0


async def test_fewer_documents_are_shown_when_asked() -> None:
    for most in (1, 5):
        (result,) = await episode(ONE_HOP, say("search: town born novel"), max_results=most)
        assert len(text_of(result.observation).splitlines()) == most
        assert len(result.observation.state["results"]) == most


async def test_a_split_does_not_show_the_other() -> None:
    heldout = questions("heldout")[0].names[0].split()[-1]
    (result,) = await episode(ONE_HOP, say(f"search: {heldout}"))
    assert result.observation.state["results"] == []


async def test_the_judge_reads_the_answer() -> None:
    scorer = WeightedScorer(
        spec_pb2.WeightedCriteria(task_type="question_answering", accuracy=1, optimal_actions=5),
        "x",
    )
    found = []
    for answer in (FULL_NAME.data["answer"], FULL_NAME.data["answer"].split()[0], "nobody"):
        (result,) = await episode(FULL_NAME, say(f"answer: {answer}"))
        score = scorer.score(trajectory_pb2.Trajectory(info=struct(result.info)))
        assert isinstance(score, Score)
        found.append(score.value)
    assert found == [1.0, pytest.approx(2 / 3), 0.0]


@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize("split", SearchQa.splits)
async def test_the_scripted_agent_answers_all_and_chance_few(split: str, tools: bool) -> None:
    scores: dict[str, list[float]] = {"scripted": [], "random": []}
    for name, found in scores.items():
        for number, scenario in enumerate(SearchQa().scenarios(split)):
            agent = SearchQa.baselines[name](number)
            played = await play(SearchQa({"tools": tools}), scenario, agent, max_turns=8)
            found.append(played.metrics["success"])
            if name == "scripted":
                assert played.reward == pytest.approx(1.0), scenario
                assert played.turns == len(scenario.data["documents"]) + 1
    assert sum(scores["random"]) < 0.1 * len(scores["random"])


@pytest.mark.parametrize("tools", [True, False])
async def test_every_scenario_keeps_the_contract(tools: bool) -> None:
    lines = ["search: town", "nonsense", "answer: Paris"]
    await check_contract(SearchQa, lines, config={"tools": tools})


async def test_wrong_scenarios_and_options_are_refused_by_field() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await SearchQa().reset(Scenario("x", {"question": "?", "answer": "!"}), seed=1)
    fields = [violation.field for violation in caught.value.violations]
    assert fields == ["scenario.data.collection", "scenario.data.documents"]
    with pytest.raises(InvalidArgumentError, match="allowed are train, heldout"):
        await SearchQa().reset(Scenario("x", {**ONE_HOP.data, "collection": "web"}), seed=1)
    for options in ({"tool": True}, {"max_results": 0}):
        with pytest.raises(InvalidArgumentError, match=f"environment.config.{next(iter(options))}"):
            SearchQa(options)
