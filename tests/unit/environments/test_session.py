"""What user code returns is not believed; the README's environment runs as it stands there."""

from __future__ import annotations

import math
import re
import sys
import types
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from podium.cli.environment_class import environment_class
from podium.cli.main import cli
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from podium.environments import Message, Tool, ToolCall, load, system, tool_result
from podium.environments.catalog import load_class
from podium.environments.serving.convert import (
    ToolsOnOffer,
    message_from_pb,
    message_to_pb,
    scenario_from_pb,
    scenario_to_pb,
    struct,
    tool_to_pb,
    unstruct,
)
from podium.environments.serving.servicer import scenario_page
from podium.environments.serving.session import LocalSession
from podium.environments.types import Observation, StepResult
from podium.types.v1 import trajectory_pb2 as pb
from support.guess_environment import TOOL, Guess

README = Path(__file__).parents[3] / "libs" / "podium" / "environments" / "README.md"
OBSERVED = Observation()
SCENARIO = pb.Scenario(id="digit-4", data=struct({"answer": 4}))


class Text(str):
    """What somebody derives of it."""


def say(text: str) -> pb.Message:
    return pb.Message(role=pb.ROLE_ASSISTANT, content=text)


async def begun(**options: object) -> LocalSession:
    session = LocalSession(Guess(options))
    await session.reset(SCENARIO, 1)
    return session


async def test_a_terminated_and_a_truncated_episode_are_told_apart_and_both_over() -> None:
    for said, ended, cut in (("4", True, False), ("cut", False, True)):
        session = await begun()
        result = await session.step(say(said))
        assert (result.terminated, result.truncated) == (ended, cut)
        with pytest.raises(FailedPreconditionError, match="after the end"):
            await session.step(say("4"))


async def test_calls_out_of_order_are_refused() -> None:
    with pytest.raises(FailedPreconditionError, match="before reset"):
        await LocalSession(Guess()).step(say("4"))
    session = await begun()
    with pytest.raises(FailedPreconditionError, match="reset was called before"):
        await session.reset(SCENARIO, 1)


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ("nan", ValueError, "reward is nan"),
        ("inf", ValueError, "reward is inf"),
        ("nan metric", ValueError, "metric 'x' is nan"),
        ("not json", TypeError, "not JSON serializable"),
        ("wrong type", TypeError, "step returned dict, not StepResult"),
    ],
)
async def test_a_result_that_breaks_the_contract_raises(
    said: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        await (await begun()).step(say(said))


async def test_an_environment_is_closed_once() -> None:
    before = Guess.open
    session = await begun()
    await session.close()
    await session.close()
    assert Guess.open == before


async def test_tools_reach_the_contract_with_their_schema() -> None:
    observation = await LocalSession(Guess({"tools": True})).reset(SCENARIO, 1)
    (tool,) = observation.tools
    assert (tool.name, tool.description) == (TOOL.name, TOOL.description)
    assert unstruct(tool.parameters) == TOOL.parameters
    assert tool_to_pb(Tool("bare")) == pb.Tool(name="bare", parameters=struct({}))


def test_the_same_tools_are_made_once_and_those_changed_in_place_anew() -> None:
    schema: dict[str, Any] = {"type": "object", "default": {"n": 1}}
    tools, on_offer = (Tool("guess", "Guesses.", schema), TOOL), ToolsOnOffer()
    for value in (1, True, 1.0, -0.0, 0, None, [1], [[1]], Text("one"), "one"):
        schema["default"]["n"] = value
        assert on_offer.to_pb(tools) == [tool_to_pb(tool) for tool in tools], value
    assert on_offer.to_pb(tools) is on_offer.to_pb(tools)
    schema["default"]["n"] = {1}
    with pytest.raises(TypeError, match="not JSON serializable"):
        on_offer.to_pb(tools)
    assert on_offer.to_pb(tools[1:]) == [tool_to_pb(TOOL)]


def test_messages_survive_the_way_there_and_back() -> None:
    call = ToolCall("call_0", "guess", '{"digit": 4')
    for message in (
        system("Be brief."),
        Message("assistant", "", (call,)),
        tool_result(call, "lower"),
    ):
        assert message_from_pb(message_to_pb(message)) == message


def test_scenario_data_survives_with_whole_numbers_whole() -> None:
    data = {"n": 7, "x": 0.5, "deep": [{"n": 1}], "none": None, "yes": True}
    back = scenario_from_pb(scenario_to_pb(Guess().scenarios("train")[0], "train"))
    assert (back.id, back.split, back.data) == ("digit-0", "train", {"answer": 0})
    assert unstruct(struct(data)) == data
    assert isinstance(unstruct(struct(data))["n"], int)
    with pytest.raises(ValueError, match="not JSON compliant"):
        struct({"x": float("inf")})


def test_pages_give_every_scenario_once_in_order() -> None:
    found, token = scenario_page(Guess, {}, "train", 2, "")
    while token:
        page, token = scenario_page(Guess, {}, "train", 2, token)
        found += page
    assert [s.id for s in found] == [f"digit-{n}" for n in range(5)]
    assert {s.split for s in found} == {"train"}


@pytest.mark.parametrize("token", ["2", "at-", "at-x", "at-5", "at--1", "at-" + "9" * 5000])
def test_a_strange_page_token_is_refused_by_field(token: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        scenario_page(Guess, {}, "train", 2, token)
    assert caught.value.violations[0].field == "page_token"


def test_an_unknown_split_or_name_says_what_there_is() -> None:
    with pytest.raises(NotFoundError, match="no split 'test'; it has train, heldout"):
        scenario_page(Guess, {}, "test", 0, "")
    with pytest.raises(NotFoundError, match=r"no environment 'chess'; built in are .*email_search"):
        load("chess")


@pytest.mark.parametrize(
    "path", ["", "nowhere:Guess", "json", "json:Guess", "json:JSONDecoder", ":Guess", "json:loads"]
)
def test_a_path_that_names_no_environment_is_refused(path: str) -> None:
    with pytest.raises(InvalidArgumentError):
        load_class(path)
    result = CliRunner().invoke(cli, ["env", "serve", path])
    assert result.exit_code == 2
    assert repr(path) in result.output


def test_a_module_of_the_folder_that_the_command_runs_in_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["from support.guess_environment import Guess", "class Here(Guess): name = 'here'"]
    (tmp_path / "environment_of_this_folder.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert environment_class("environment_of_this_folder:Here").name == "here"
    assert environment_class("coding").name == "coding"


async def test_the_readmes_environment_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    snippet, *_ = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    code = snippet[snippet.index("class ") :].strip().splitlines()
    assert len([line for line in code if line.strip()]) <= 20
    module = types.ModuleType("readme_environment")
    exec(compile(snippet, str(README), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    kind = load_class("readme_environment:Guess")
    train, _ = scenario_page(kind, {}, "train", 0, "")
    heldout, _ = scenario_page(kind, {}, "heldout", 0, "")
    assert not {s.id for s in train} & {s.id for s in heldout}

    session = LocalSession(kind())
    observation = await session.reset(train[7], 1)
    assert "below 100" in observation.messages[0].content
    hints = [(await session.step(say(text))).observation for text in ("3", "50", "what?")]
    assert [hint.messages[0].content for hint in hints] == ["higher", "lower", "higher"]
    last = await session.step(say("7"))
    assert (last.reward, last.terminated, last.metrics["success"]) == (1.0, True, 1.0)


def test_wrong_options_are_told_in_the_words_of_job_files() -> None:
    game = load("2048")
    with pytest.raises(InvalidArgumentError) as raised:
        game({"gaol": 64, "goal": "x"})
    assert [str(violation) for violation in raised.value.violations] == [
        "environment.config.goal: got 'x': Input should be a valid integer, unable to parse string "
        "as an integer",
        "environment.config.gaol: unknown option; did you mean 'goal'?",
    ]
    with pytest.raises(InvalidArgumentError, match=r"unknown option; known are .*goal"):
        game({"zzz": 1})


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (StepResult(OBSERVED, None), "reward is null; allowed are finite numbers"),  # type: ignore[arg-type]
        (StepResult(OBSERVED, "much"), 'reward is "much"; allowed are finite'),  # type: ignore[arg-type]
        (StepResult(OBSERVED, 1, metrics={"time": None}), "metric 'time' is null; allowed are"),  # type: ignore[dict-item]
        (StepResult(OBSERVED, 1, metrics={3: 1.0}), "metric 3 has a name that is no text"),  # type: ignore[dict-item]
        (StepResult(OBSERVED, 1, metrics=[("a", 1)]), "allowed is a dict of names to numbers"),  # type: ignore[arg-type]
        (StepResult(OBSERVED, math.nan), "reward is nan; allowed are finite numbers"),
        (StepResult(OBSERVED, 10**400), "reward is inf; allowed are finite numbers"),
    ],
)
async def test_numbers_that_are_none_are_named(result: StepResult, told: str) -> None:
    session = await begun()

    async def step(action: Message) -> StepResult:
        return result

    session._environment.step = step  # type: ignore[method-assign]
    with pytest.raises((TypeError, ValueError), match=re.escape(told)):
        await session.step(say("4"))


@pytest.mark.parametrize("reward", [True, Decimal("0.5"), np.float32(0.5), np.int64(2)])
async def test_numbers_of_other_types_are_numbers(reward: Any) -> None:
    session = await begun()

    async def step(action: Message) -> StepResult:
        return StepResult(OBSERVED, reward, metrics={"own": reward})

    session._environment.step = step  # type: ignore[method-assign]
    response = await session.step(say("4"))
    assert (response.reward, response.metrics["own"]) == (float(reward), float(reward))
