"""The email environment as the tutorial has it: rows S4, S5 and S8 to S10; and the baselines."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from podium.environments import StepResult, play
from podium.environments.email_search import EmailSearch, corpus, tutorial
from podium.environments.types import assistant
from support.environments import check_contract
from support.full import full
from support.golden import golden

GOLDEN = golden("tutorial_email.json")
README = Path(tutorial.__file__).with_name("README.md")
SCENARIO = EmailSearch().scenarios("train")[0]
EMAILS = {e.number: e for e in corpus.emails() if e.inbox == SCENARIO.data["inbox"]}
RIGHT = EMAILS[SCENARIO.data["answer"]]
WRONG = next(number for number in EMAILS if number != RIGHT.number)
CONTENT = [
    {
        "number": 1,
        "sender": "ben@x",
        "subject": "Lunch",
        "body": "the review",
        "date": "2026-02-01",
    },
    {
        "number": 2,
        "sender": "budget@x",
        "subject": "Budget review",
        "body": "",
        "date": "2026-01-01",
    },
    {"number": 3, "sender": "carla@x", "subject": "Hello", "body": "", "date": "2026-03-01"},
]


async def played(*lines: str, **options: Any) -> list[StepResult]:
    episode = EmailSearch({"rewards": "tutorial", **options})
    await episode.reset(SCENARIO, 1)
    return [await episode.step(assistant(line)) for line in lines]


def begun() -> tutorial.Episode:
    return tutorial.Episode("budget review", CONTENT, answer=2)


# The tutorial's rewards are formulas of the same searches: a scenario of each five shows them.
@pytest.mark.parametrize(
    ("rewards", "every"), [("corrected", 1), ("tutorial", 5), full("tutorial", 1)]
)
async def test_s4_contract_in_every_scenario(rewards: str, every: int) -> None:
    lines = ["hello", "search: Monday", "filter: the", "sort: newest", "select: 3"]
    await check_contract(EmailSearch, lines, config={"rewards": rewards}, every=every)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([*tutorial.ACTIONS, "delete"]), st.text(max_size=8)), max_size=6
    )
)
def test_s4_an_action_gives_state_reward_done_and_info(actions: list[tuple[str, str]]) -> None:
    episode = begun()
    for number, (action, argument) in enumerate(actions, start=1):
        state, reward, done, info = episode.step(action, argument)
        assert math.isfinite(reward)
        assert done is (action == "select")
        json.dumps([state, info], allow_nan=False)
        assert list(state) == list(tutorial.initial_state(""))
        assert state["step"] == number


async def test_s5_the_first_state_and_a_step_that_rises() -> None:
    first = await EmailSearch({"rewards": "tutorial"}).reset(SCENARIO, 1)
    assert first.state == tutorial.initial_state(SCENARIO.data["question"])
    results = await played("search", "anything", "filter: the", "select")
    assert [r.observation.state["step"] for r in results] == [1, 2, 3, 4]


async def test_s7_a_search_pays_by_the_tutorials_formula_and_pays_again() -> None:
    once, again, later = await played("search: budget", "search: budget", "search")
    found = once.observation.state["search_results"]
    assert once.reward == tutorial.search_reward(found) > 0
    found = again.observation.state["search_results"]
    assert again.reward == later.reward == tutorial.search_reward(found) > 0
    (nothing,) = await played("search: zebra")
    assert nothing.reward == GOLDEN["email_search"]["none"]


async def test_s6_a_search_without_words_searches_for_the_question() -> None:
    (result,) = await played("I will search the inbox")
    everything = [e.__dict__ for e in EMAILS.values()]
    expected = tutorial.search(SCENARIO.data["question"], everything)
    assert result.observation.state["search_results"] == expected
    # The agent is shown as many rows as in the corrected mode.
    assert len(result.observation.messages[0].content.splitlines()) == 1 + 4 < 1 + len(expected)


def test_s8_filter_sort_and_select_have_rewards_and_select_ends() -> None:
    episode = begun()
    assert episode.step("search", "")[1:] == (pytest.approx(0.22), False, {})
    assert episode.step("sort", "sender")[1:] == (0.0, False, {})
    assert [e["number"] for e in episode.state["search_results"]] == [1, 2]
    assert episode.step("filter", "lunch")[1:] == (0.0, False, {})
    assert episode.step("filter", "zebra")[1:] == (tutorial.NOTHING_FOUND, False, {})
    assert episode.state["search_results"] == []
    assert episode.step("select", "2")[1:] == (tutorial.SELECTED_RIGHT, True, {})


@pytest.mark.parametrize(
    ("argument", "selected", "reward"),
    [("2", 2, 1.0), ("1", 1, 0.0), ("99", None, 0.0), ("", 2, 1.0), ("the first", 2, 1.0)],
)
def test_s8_select_takes_the_number_or_the_first_result(
    argument: str, selected: int | None, reward: float
) -> None:
    episode = begun()
    episode.step("search")
    assert episode.step("select", argument)[1:3] == (reward, True)
    assert (episode.selected or {"number": None})["number"] == selected


def test_s8_an_unknown_action_costs_and_is_named() -> None:
    episode = begun()
    episode.step("search")
    before = episode.state
    state, reward, done, info = episode.step("delete", "2")
    assert (reward, done) == (tutorial.UNKNOWN_ACTION, False)
    assert info["error"] == "unknown action 'delete'; allowed are search, filter, sort, select"
    assert state == {**before, "step": 2}


async def test_s8_in_the_environment_select_ends_and_only_the_right_email_is_success() -> None:
    for number, success in ((RIGHT.number, 1.0), (WRONG, 0.0)):
        *_, last = await played("search", f"select: {number}")
        assert (last.terminated, last.reward, last.metrics["success"]) == (True, success, success)
        assert last.info["result"]["selected_email"]["subject"] == EMAILS[number].subject


def test_s9_the_readmes_job_asks_with_the_tutorials_parameters() -> None:
    (snippet,) = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    job = yaml.safe_load(snippet)
    assert job["rollout"]["sampling"] == GOLDEN["request"]
    assert EmailSearch(job["environment"]["config"]).config.rewards == "tutorial"


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (["search: Monday", "Let me FILTER and then select"], "filter"),
        (["search: Monday", "filter it"], "filter"),
        (["search: zebra", "filter it"], "search"),
        (["search: zebra", "what now?"], "search"),
        # The default action, which is for the question.
        (["search: Monday", "search: zebra"], "search"),
    ],
)
async def test_s10_the_environment_reads_replies_as_the_tutorial_does(
    lines: list[str], kept: str
) -> None:
    *_, last = await played(*lines)
    assert not last.terminated
    found = last.observation.state["search_results"]
    everything = [e.__dict__ for e in EMAILS.values()]
    by_question = tutorial.search(SCENARIO.data["question"], everything)
    monday = tutorial.search("Monday", everything)
    words = SCENARIO.data["question"]
    assert found == (by_question if kept == "search" else tutorial.filter_results(monday, words))


async def test_s42_baselines_are_a_floor_and_a_ceiling() -> None:
    success = {}
    for name, make in EmailSearch.baselines.items():
        games = [
            await play(EmailSearch(), scenario, make(seed), seed=seed, max_turns=10)
            for seed, scenario in enumerate(EmailSearch().scenarios("heldout"))
        ]
        success[name] = sum(game.metrics["success"] for game in games) / len(games)
        assert all(game.metrics["valid_format"] == 1.0 for game in games)
    assert success["scripted"] == 1.0
    assert success["random"] < 0.2
    again = [
        await play(EmailSearch(), SCENARIO, EmailSearch.baselines["random"](3), max_turns=10)
        for _ in range(2)
    ]
    assert again[0] == again[1]
