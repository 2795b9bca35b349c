"""`podium eval` of agents that need no service; of policies in tests/integration/spine."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from support.cli import invoke
from support.fake_judge import Answer, completion, fails, fake_judge

EMAIL = ("eval", "email_search", "--limit", "12")


async def test_baselines_are_measured_and_compared(tmp_path: Path) -> None:
    result = await invoke(*EMAIL, "-a", "baseline:random", "-a", "baseline:scripted", cwd=tmp_path)
    assert result.code == 0, result.err
    head, first, second, comparison, *scenarios = result.out.splitlines()
    assert head.split() == [
        "AGENT",
        "SUCCESS",
        "95",
        "%",
        "PASS@1",
        "REWARD",
        "95",
        "%",
        "TURNS",
        "FAILED",
        "N",
    ]
    assert first.split()[0] == "baseline:random"
    assert second.split()[:2] == ["baseline:scripted", "100.00%"]
    assert "better in" in comparison
    assert "of 12 scenarios, p = " in comparison
    assert scenarios[0] == ""
    assert scenarios[1].split() == ["SCENARIO", "baseline:random", "baseline:scripted"]
    assert len(scenarios) == 14
    for row in scenarios[2:]:
        _, one, reward, other, _ = row.split()
        assert one in ("0/1", "1/1")
        assert float(reward) < 2
        assert other == "1/1"


async def test_a_long_table_of_scenarios_is_cut_and_json_has_the_rest(tmp_path: Path) -> None:
    command = ("eval", "email_search", "-a", "baseline:scripted", "--limit", "23")
    result = await invoke(*command, cwd=tmp_path)
    lines = result.out.splitlines()
    assert lines[2] == ""
    assert len(lines[4:-1]) == 20
    assert lines[-1] == "… and 3 more scenarios; -o json has them all"
    (found,) = json.loads((await invoke(*command, "-o", "json", cwd=tmp_path)).out)
    assert len(found["by_scenario"]) == 23
    first = next(iter(found["by_scenario"]))
    assert lines[4].split()[0] == first
    row = found["by_scenario"][first]
    assert (row["successes"], row["attempts"]) == (1, 1)
    assert row["reward"] == found["episodes"][0]["reward"]


async def test_json_has_every_attempt(tmp_path: Path) -> None:
    arguments = ("-a", "baseline:scripted", "--attempts", "2", "-o", "json")
    result = await invoke(*EMAIL, *arguments, cwd=tmp_path)
    (found,) = json.loads(result.out)
    assert found["attempts"] == len(found["episodes"]) == 24
    assert found["pass_at"] == {"1": 1.0, "2": 1.0}
    assert all(episode["success"] for episode in found["episodes"])


async def test_a_threshold_replaces_the_environments_success(tmp_path: Path) -> None:
    arguments = ("-a", "baseline:scripted", "--threshold", "1.5", "-o", "json")
    (found,) = json.loads((await invoke(*EMAIL, *arguments, cwd=tmp_path)).out)
    assert found["success"] == 0


async def test_any_model_behind_an_openai_api(tmp_path: Path) -> None:
    with fake_judge() as api:
        api.then(lambda _: completion("select: 1"))
        environment = {"OPENAI_BASE_URL": api.base_url, "OPENAI_API_KEY": "secret"}
        result = await invoke(
            *EMAIL, "-a", "openai:some-model", "-o", "json", cwd=tmp_path, environment=environment
        )
    assert result.code == 0, result.err
    (found,) = json.loads(result.out)
    assert found["attempts"] == 12
    assert found["turns"] == 1
    assert set(api.authorizations) == {"Bearer secret"}


async def test_a_busy_api_is_waited_for(tmp_path: Path) -> None:
    chance = random.Random(3)

    def sometimes(request: dict[str, Any]) -> Answer:
        busy = chance.random() < 0.3
        return Answer(429, b"{}", {"retry-after": "0.01"}) if busy else completion("select: 1")

    with fake_judge() as api:
        api.then(sometimes)
        result = await invoke(
            *EMAIL, "-a", "openai:m", cwd=tmp_path, environment={"OPENAI_BASE_URL": api.base_url}
        )
    assert result.code == 0, result.err
    assert result.out.splitlines()[1].split()[-2:] == ["0", "12"]


async def test_what_was_never_answered_is_told_apart_and_counted_nowhere(tmp_path: Path) -> None:
    def some(request: dict[str, Any]) -> Answer:
        refused = request["seed"] % 2
        return Answer(401, b"no such key") if refused else completion("select: 1")

    arguments = ("-a", "baseline:scripted", "-a", "openai:m", "--attempts", "2")
    with fake_judge() as api:
        environment = {"OPENAI_BASE_URL": api.base_url}
        api.then(some)
        table = await invoke(*EMAIL, *arguments, cwd=tmp_path, environment=environment)
        api.then(some)
        found = await invoke(
            *EMAIL, *arguments, "-o", "json", cwd=tmp_path, environment=environment
        )
        api.then(fails(401, "no such key"))
        nothing = await invoke(
            *EMAIL, "-a", "openai:m", "-a", "baseline:random", cwd=tmp_path, environment=environment
        )
    assert (table.code, found.code, nothing.code) == (3, 3, 3)
    head, _, row, *_ = table.out.splitlines()
    assert head.split()[-2:] == ["N", "UNANSWERED"]
    assert row.split()[-3:] == ["0", "12", "12"]
    assert "12 of 24 attempts of openai:m were never answered" in table.err
    assert "401: no such key" in table.err
    _, model = json.loads(found.out)
    assert (model["attempts"], model["unanswered"], model["failed"]) == (12, 12, 0)
    assert len(model["episodes"]) == 24
    assert all(each["attempts"] == 1 for each in model["by_scenario"].values())
    # What could be measured is.
    assert "baseline:random" in nothing.out
    assert "openai:m" not in nothing.out.splitlines()[1]


async def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    for arguments, text in (
        (("-a", "baseline:best"), "has no baseline 'best'; it has random, scripted"),
        (("-a", "human:me"), "got --agent 'human:me'; allowed are a policy"),
        (("-a", "baseline:random", "--split", "dev"), "no split 'dev'; it has train, heldout"),
        (("-a", "baseline:random", "--set", "max_results"), "'max_results' is not KEY=VALUE"),
        (("-a", "baseline:random", "--set", "max_results=0"), "environment.config.max_results"),
    ):
        result = await invoke(*EMAIL, *arguments, cwd=tmp_path)
        assert result.code == 2, (arguments, result.err)
        assert text in result.err, result.err
    result = await invoke("eval", "chess", "-a", "baseline:random", cwd=tmp_path)
    assert result.code == 5
    assert "no environment 'chess'" in result.err


async def test_a_split_without_scenarios_is_nothing_to_measure(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(
        """from podium.environments import Environment

class Bare(Environment):
    def scenarios(self, split): return []
    async def reset(self, scenario, seed): raise AssertionError
    async def step(self, action): raise AssertionError
"""
    )
    result = await invoke("eval", "bare:Bare", "--agent", "openai:some", cwd=tmp_path)
    assert result.code == 2, result.err
    assert "bare:Bare has no scenarios in the split 'heldout'" in result.err
