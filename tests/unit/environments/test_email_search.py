"""The email environment, whatever its prompt and its numbers are tuned to."""

from __future__ import annotations

import json
import math

import pytest
from google.protobuf import json_format
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.environments import Message, Observation, Scenario, StepResult
from podium.environments.email_search import EmailSearch, corpus, environment
from podium.environments.serving.convert import message_to_pb, scenario_to_pb, struct
from podium.environments.serving.session import LocalSession
from podium.types.v1 import trajectory_pb2
from podium_judge.domain import criteria

SCENARIO = EmailSearch().scenarios("train")[0]
EMAILS = {e.number: e for e in corpus.emails() if e.inbox == SCENARIO.data["inbox"]}
RIGHT = EMAILS[SCENARIO.data["answer"]]
WRONG = next(e for e in EMAILS.values() if e.sender != RIGHT.sender)
FIND = f"search: {RIGHT.sender} {RIGHT.subject}"
MALFORMED = [
    "",
    "\n",
    "hello",
    "search for it",
    "select",
    "delete: 3",
    "I will search: Anna",
    "{}",
    "searching: x",
    "/select: 3",
]


def say(text: str) -> Message:
    return Message("assistant", text)


async def begun() -> EmailSearch:
    episode = EmailSearch()
    await episode.reset(SCENARIO, seed=1)
    return episode


async def play(*replies: str) -> list[StepResult]:
    episode = await begun()
    return [await episode.step(say(reply)) for reply in replies]


def text_of(observation: Observation) -> str:
    return "\n".join(message.content for message in observation.messages)


async def test_s5_reset_asks_the_question_and_shows_the_state() -> None:
    observation = await EmailSearch().reset(SCENARIO, seed=1)
    assert observation.state == {
        "query": SCENARIO.data["question"],
        "available_actions": ["search", "filter", "sort", "select"],
        "search_results": [],
        "step": 0,
    }
    prompt = text_of(observation)
    assert prompt.endswith(SCENARIO.data["question"])
    assert all(f"{action}:" in prompt for action in observation.state["available_actions"])


async def test_the_prompt_gives_no_answer_away() -> None:
    """Its example must not be an email that a question is about."""
    shown = text_of(await EmailSearch().reset(Scenario("x", {**SCENARIO.data, "question": ""}), 1))
    assert not [e for e in corpus.emails() if e.sender in shown]


async def test_s4_and_s5_every_step_is_plain_data_and_counts() -> None:
    replies = [FIND, "nonsense", "filter: the", "sort: newest", f"select: {RIGHT.number}"]
    for number, result in enumerate(await play(*replies), start=1):
        assert math.isfinite(result.reward)
        assert result.terminated is (number == len(replies))
        assert result.truncated is False
        assert result.observation.state["step"] == number
        json.dumps([result.observation.state, result.info], allow_nan=False)


async def test_a_good_episode_earns_one_and_only_the_right_email_more_than_half() -> None:
    good = await play(FIND, f"select: {RIGHT.number}")
    assert sum(r.reward for r in good) == pytest.approx(1.0)
    assert good[-1].metrics["success"] == 1.0
    wrong = await play(FIND, FIND, "sort: newest", f"select: {WRONG.number}")
    assert wrong[-1].terminated
    assert wrong[-1].metrics["success"] == 0.0
    assert sum(r.reward for r in wrong) <= 0.5


async def test_the_same_search_is_not_paid_for_twice() -> None:
    first, second, third = await play(FIND, FIND, FIND)
    assert first.reward > 0
    assert second.reward == third.reward == 0.0


async def test_s8_each_action_has_a_reward_and_only_select_ends() -> None:
    results = await play(FIND, "filter: the", "sort: oldest", "select: 0")
    assert [r.terminated for r in results] == [False, False, False, True]
    assert [r.reward for r in results[1:3]] == [0.0, 0.0]


async def test_search_shows_the_rows_that_it_found() -> None:
    (result,) = await play(FIND)
    row = {"number": RIGHT.number, "sender": RIGHT.sender, "subject": RIGHT.subject}
    assert result.observation.state["search_results"] == [row]
    assert text_of(result.observation).splitlines()[1:] == [
        f"{RIGHT.number} | {RIGHT.sender} | {RIGHT.subject}"
    ]
    assert result.metrics["search_hit"] == 1.0


async def test_search_that_finds_nothing_says_so() -> None:
    (result,) = await play("search: zebra")
    assert "none" in text_of(result.observation)
    assert result.metrics["search_hit"] == 0.0


async def test_filter_keeps_rows_with_the_word_and_sort_orders_by_date() -> None:
    sender = max(
        {e.sender for e in EMAILS.values()},
        key=lambda name: sum(e.sender == name for e in EMAILS.values()),
    )
    theirs = sorted((e for e in EMAILS.values() if e.sender == sender), key=lambda e: e.date)
    kept = theirs[0]
    newest, oldest, filtered = (
        [row["number"] for row in result.observation.state["search_results"]]
        for result in (
            await play(f"search: {sender}", "sort: newest", "sort: oldest", f"filter: {kept.body}")
        )[1:]
    )
    by_date = [EMAILS[n].date for n in oldest]
    assert len(oldest) > 1
    assert by_date == sorted(by_date)
    assert [EMAILS[n].date for n in newest] == sorted(by_date, reverse=True)
    assert filtered == [n for n in oldest if n == kept.number]


@pytest.mark.parametrize("reply", MALFORMED)
async def test_a_reply_that_is_no_action_costs_and_is_told(reply: str) -> None:
    bad, good = await play(reply, FIND)
    assert bad.reward == environment.INVALID_REWARD < 0
    assert not bad.terminated
    assert "search:" in text_of(bad.observation)
    assert bad.metrics["valid_format"] == 0.0
    assert good.metrics["valid_format"] == 0.5


@pytest.mark.parametrize("reply", ["select: ", "select: none", "select: -1", "select: 999999"])
async def test_a_select_of_no_email_ends_without_success(reply: str) -> None:
    (result,) = await play(reply)
    assert result.terminated
    assert result.metrics["success"] == 0.0


async def test_only_the_first_action_of_a_reply_is_taken() -> None:
    (result,) = await play(f"{FIND}\nselect: {RIGHT.number}")
    assert not result.terminated
    assert result.metrics["search_hit"] == 1.0


async def test_episodes_do_not_see_each_other() -> None:
    one, two = await begun(), await begun()
    await one.step(say(FIND))
    quiet = await two.step(say("sort: newest"))
    assert quiet.observation.state["search_results"] == []
    assert quiet.observation.state["step"] == 1
    assert quiet.metrics["search_hit"] == 0.0


async def test_a_scenario_without_its_data_is_refused_by_field() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await EmailSearch().reset(Scenario("x", {"question": "?"}), seed=1)
    fields = [violation.field for violation in caught.value.violations]
    assert fields == ["scenario.data.inbox", "scenario.data.answer"]


@pytest.mark.parametrize("options", [{"max_result": 3}, {"max_results": 0}, {"max_results": "x"}])
def test_wrong_options_are_refused_by_field(options: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        EmailSearch(options)
    assert [v.field for v in caught.value.violations] == [
        f"environment.config.{next(iter(options))}"
    ]


async def test_fewer_rows_are_shown_when_asked() -> None:
    sender = f"search: {RIGHT.sender.split()[0]}"
    episode = EmailSearch({"max_results": 1})
    await episode.reset(SCENARIO, seed=1)
    result = await episode.step(say(sender))
    assert len(result.observation.state["search_results"]) == 1


async def test_nothing_is_stepped_after_the_end() -> None:
    session = LocalSession(EmailSearch())
    await session.reset(scenario_to_pb(SCENARIO, "train"), 1)
    assert (await session.step(message_to_pb(say("select: 0")))).terminated
    with pytest.raises(FailedPreconditionError, match="after the end"):
        await session.step(message_to_pb(say(FIND)))


async def test_the_weighted_criteria_find_what_they_compare() -> None:
    """The judge's email criterion (S23) on a right choice, a wrong one and none."""
    found: list[float] = []
    for number in (RIGHT.number, WRONG.number, 0):
        *_, last = await play(FIND, f"select: {number}")
        trajectory = trajectory_pb2.Trajectory(
            info=struct(last.info), stop_reason=trajectory_pb2.STOP_REASON_TERMINATED
        )
        expected = trajectory.info["expected"]
        found.append(
            criteria.email_accuracy(
                json_format.MessageToDict(trajectory.info)["result"],
                list(expected["keywords"]),
                expected["sender"],
            )
        )
    right, wrong, none = found
    assert right == pytest.approx(1.0)
    assert wrong < right
    assert none == 0.2


async def test_the_agent_is_told_of_and_may_do_only_the_actions_of_the_job() -> None:
    episode = EmailSearch({"actions": ["search", "select"]})
    prompt = text_of(await episode.reset(SCENARIO, seed=1))
    assert "filter:" not in prompt
    refused = await episode.step(say("filter: the"))
    assert refused.reward == environment.INVALID_REWARD
    with pytest.raises(InvalidArgumentError, match="search and select"):
        EmailSearch({"actions": ["search"]})
