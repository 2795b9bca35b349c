"""Environments of the real Gymnasium, played in text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.environments import Message, Observation, Scenario, Scripted, load, play
from podium.environments.adapters.gymnasium import Gymnasium, Random
from podium.environments.serving.convert import struct
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain.episode import Episode
from support.rollout import PolicyDouble, group_request, script

LAKE = {
    "id": "FrozenLake-v1",
    "kwargs": {"is_slippery": False},
    "actions": ["left", "down", "right", "up"],
    "render": True,
    "success_above": 0.5,
}
# The one shortest way around the holes that begins downwards.
WAY = ["down", "down", "right", "right", "down", "right"]


def text_of(observation: Observation) -> str:
    return "\n".join(message.content for message in observation.messages)


async def begun(config: dict[str, Any], seed: int = 0) -> tuple[Gymnasium, Observation]:
    environment = Gymnasium(config)
    return environment, await environment.reset(Scenario("x", {"seed": seed}), 1)


@pytest.fixture
def corridor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that registers an environment as it is imported."""
    name = "corridor_of_a_test"
    (tmp_path / f"{name}.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Corridor-v3', 'gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv')\n"
    )
    (tmp_path / "broken_of_a_test.py").write_text("1 / 0")
    (tmp_path / "ending_of_a_test.py").write_text("raise SystemExit('it ends')")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)
    gymnasium.registry.pop("Corridor-v3", None)


async def test_an_environment_of_a_module_is_found_by_its_name(corridor: str) -> None:
    _, first = await begun({"id": f"{corridor}:Corridor-v3"})
    assert text_of(first).startswith(f"You act in {corridor}:Corridor-v3.")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("none_of_a_test:Corridor-v3", "No module named 'none_of_a_test'"),
        ("broken_of_a_test:Corridor-v3", "division by zero"),
        ("gymnasium:Corridor-v3", "Environment `Corridor` doesn't exist"),
        (".:Corridor-v3", "import"),
        ("ending_of_a_test:Corridor-v3", "it ends"),
        ("Corridor-v3", "Environment `Corridor` doesn't exist"),
    ],
)
@pytest.mark.usefixtures("corridor")
def test_one_that_is_not_there_is_told_as_such(name: str, told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Gymnasium({"id": name})
    assert f"got {name!r}: " in str(caught.value)
    assert told in str(caught.value)


def say(text: str) -> Message:
    return Message("assistant", text)


async def test_a_walk_over_the_lake_is_seen_and_paid_as_gymnasium_does() -> None:
    environment, first = await begun(LAKE)
    assert text_of(first).startswith("You act in FrozenLake-v1.\nActions: left, down, right, up.")
    assert text_of(first).endswith("\n[S]FFF\nFHFH\nFFFH\nHFFG")
    results = [await environment.step(say(f"<action>{move}</action>")) for move in WAY]
    await environment.close()
    assert text_of(results[0].observation) == "  (Down)\nSFFF\n[F]HFH\nFFFH\nHFFG"
    assert [r.reward for r in results] == [0, 0, 0, 0, 0, 1]
    assert [r.terminated for r in results] == [False] * 5 + [True]
    assert not any(r.truncated for r in results)
    assert results[-1].metrics == {
        "return": 1.0,
        "steps": 6.0,
        "invalid_actions": 0.0,
        "success": 1.0,
    }
    assert results[-1].info == {"prob": 1.0}


async def test_it_is_the_game_that_gymnasium_plays_with_the_same_seed() -> None:
    ours, first = await begun({"id": "Blackjack-v1"}, seed=7)
    theirs = gymnasium.make("Blackjack-v1")
    seen, _ = theirs.reset(seed=7)
    assert first.state["observation"] == [int(part) for part in seen]
    over = False
    while not over:
        result = await ours.step(say("I take 1"))
        seen, reward, over, cut, _ = theirs.step(1)
        assert result.observation.state["observation"] == [int(part) for part in seen]
        assert (result.reward, result.terminated, result.truncated) == (reward, over, cut)


async def test_a_time_limit_truncates_and_does_not_terminate() -> None:
    environment, _ = await begun({**LAKE, "kwargs": {"is_slippery": False, "max_episode_steps": 2}})
    first, second = [await environment.step(say("left")) for _ in range(2)]
    assert (first.terminated, first.truncated) == (False, False)
    assert (second.terminated, second.truncated) == (False, True)


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ("<action>right</action>", 1),
        ("not down but RIGHT.", 1),
        ("<action>down</action> no: <action> right </action> down", 1),
        ("upright", None),
        ("<action>2</action>", None),
        ("", None),
    ],
)
async def test_a_name_is_read_from_the_last_tag_or_the_whole_text(
    said: str, taken: int | None
) -> None:
    environment, _ = await begun(LAKE)
    result = await environment.step(say(said))
    assert result.metrics["invalid_actions"] == (taken is None)
    if taken is not None:
        assert result.observation.state["observation"] == taken


@pytest.mark.parametrize("said", ["9", "-1", "three", "9" * 400, "<action></action> 1"])
async def test_a_number_out_of_range_is_no_action(said: str) -> None:
    environment, _ = await begun({"id": "Blackjack-v1"})
    result = await environment.step(say(said))
    assert result.metrics["invalid_actions"] == 1
    assert "Actions: whole numbers from 0 to 1." in text_of(result.observation)


@pytest.mark.parametrize(
    ("said", "valid"),
    [
        ("[0.5]", True),
        ("<action>[-2]</action>", True),
        ("[3.0]", False),
        ("[0.1, 0.2]", False),
        ("0.5", False),
        ("half", False),
        ("[null]", False),
        ('{"a": 1}', False),
        ("[[", False),
    ],
)
async def test_a_box_takes_json_of_its_shape_and_bounds(said: str, valid: bool) -> None:
    environment, _ = await begun({"id": "Pendulum-v1"})
    result = await environment.step(say(said))
    assert result.metrics["invalid_actions"] == (not valid)
    assert (result.reward == -0.1) == (not valid)


async def test_an_answer_without_an_action_is_asked_again_replaced_or_ends() -> None:
    retry, _ = await begun({**LAKE, "invalid_reward": -0.25})
    result = await retry.step(say("?"))
    assert (result.reward, result.metrics["steps"], result.terminated) == (-0.25, 0, False)
    assert text_of(result.observation) == "no action was found. Actions: left, down, right, up."

    ending, _ = await begun({**LAKE, "invalid": "end"})
    result = await ending.step(say("?"))
    assert (result.reward, result.terminated, result.truncated) == (-0.1, True, False)

    taken = set()
    for seed in range(20):
        replacing, _ = await begun({**LAKE, "invalid": "random"})
        replacing._seed = seed
        result = await replacing.step(say("?"))
        assert (result.reward, result.metrics["steps"]) == (-0.1, 1)
        taken.add(text_of(result.observation).split("up. ")[1].split(" was taken")[0])
    assert taken == {"left", "down", "right", "up"}


async def test_train_and_heldout_share_no_seed_and_a_scenario_is_always_the_same() -> None:
    environment = Gymnasium({"id": "CartPole-v1", "train": 50, "heldout": 20})
    train, heldout = (environment.scenarios(split) for split in ("train", "heldout"))
    assert (len(train), len(heldout)) == (50, 20)
    assert not {s.id for s in train} & {s.id for s in heldout}
    starts = []
    for scenario, seed in ((train[3], 1), (train[3], 2), (train[4], 1)):
        observation = await Gymnasium({"id": "CartPole-v1"}).reset(scenario, seed)
        starts.append(observation.state["observation"])
    assert starts[0] == starts[1] != starts[2]


async def test_random_play_is_a_baseline_and_an_episode_that_was_cut_has_its_metrics() -> None:
    scenario = Scenario("x", {"seed": 5})
    played = await play(Gymnasium({"id": "CartPole-v1"}), scenario, Random(), max_turns=500)
    assert played.terminated
    assert played.reward == played.metrics["return"] == played.turns
    assert played.metrics["invalid_actions"] == 0
    cut = await play(Gymnasium(LAKE), scenario, Scripted(["down"]), max_turns=2)
    assert (cut.terminated, cut.metrics["success"]) == (False, 0.0)
    unmoved = await play(Gymnasium(LAKE), scenario, Scripted(["down"]), max_turns=0)
    assert unmoved.metrics["steps"] == 0


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "id"),
        ({"id": "NoSuch-v3"}, "id"),
        ({"id": "nowhere.at_all:Lake-v1"}, "id"),
        ({"id": "FrozenLake-v1", "colour": 1}, "colour"),
        ({"id": "FrozenLake-v1", "invalid": "ignore"}, "invalid"),
        ({"id": "FrozenLake-v1", "actions": ["left"]}, "actions"),
        ({"id": "FrozenLake-v1", "kwargs": {"slippery": True}}, "kwargs"),
    ],
)
async def test_a_wrong_option_is_named(config: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await begun(config)
    assert [v.field for v in caught.value.violations] == [f"environment.config.{field}"]


async def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(FailedPreconditionError, match=r"pip install 'gymnasium>=1\.4'") as caught:
        load("gymnasium")({"id": "FrozenLake-v1"})
    assert caught.value.reason == "PACKAGE_MISSING"


async def test_a_job_trains_on_it_by_name() -> None:
    request = group_request(max_turns=10)
    request.environment.name = "gymnasium"
    request.environment.config.CopyFrom(struct(LAKE))
    request.scenario.data.CopyFrom(struct({"seed": 2}))
    policy = PolicyDouble(script(request, {0: WAY}))
    (trajectory,) = await Episode(request, 0, Environments(), policy).run()
    assert trajectory.stop_reason == pb.STOP_REASON_TERMINATED
    assert trajectory.environment_reward == 1
    assert trajectory.metrics["success"] == 1
