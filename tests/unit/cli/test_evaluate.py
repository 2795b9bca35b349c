"""`podium eval` of agents that need no service; of policies in tests/integration/spine."""

from __future__ import annotations

import json
from pathlib import Path

from support.cli import podium
from support.fake_judge import completion, fake_judge

EMAIL = ("eval", "email_search", "--limit", "12")


async def test_baselines_are_measured_and_compared(tmp_path: Path) -> None:
    result = await podium(*EMAIL, "-a", "baseline:random", "-a", "baseline:scripted", cwd=tmp_path)
    assert result.code == 0, result.err
    head, first, second, comparison, *scenarios = result.out.splitlines()
    assert head.split() == [
        "AGENT",
        "SUCCESS",
        "95",
        "%",
        "PASS@1",
        "REWARD",
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
    result = await podium(*command, cwd=tmp_path)
    lines = result.out.splitlines()
    assert lines[2] == ""
    assert len(lines[4:-1]) == 20
    assert lines[-1] == "… and 3 more scenarios; -o json has them all"
    (found,) = json.loads((await podium(*command, "-o", "json", cwd=tmp_path)).out)
    assert len(found["by_scenario"]) == 23
    first = next(iter(found["by_scenario"]))
    assert lines[4].split()[0] == first
    row = found["by_scenario"][first]
    assert (row["successes"], row["attempts"]) == (1, 1)
    assert row["reward"] == found["episodes"][0]["reward"]


async def test_json_has_every_attempt(tmp_path: Path) -> None:
    arguments = ("-a", "baseline:scripted", "--attempts", "2", "-o", "json")
    result = await podium(*EMAIL, *arguments, cwd=tmp_path)
    (found,) = json.loads(result.out)
    assert found["attempts"] == len(found["episodes"]) == 24
    assert found["pass_at"] == {"1": 1.0, "2": 1.0}
    assert all(episode["success"] for episode in found["episodes"])
    again = await podium(*EMAIL, *arguments, cwd=tmp_path)
    assert again.out == result.out


async def test_a_threshold_replaces_the_environments_success(tmp_path: Path) -> None:
    arguments = ("-a", "baseline:scripted", "--threshold", "1.5", "-o", "json")
    (found,) = json.loads((await podium(*EMAIL, *arguments, cwd=tmp_path)).out)
    assert found["success"] == 0


async def test_any_model_behind_an_openai_api(tmp_path: Path) -> None:
    with fake_judge() as api:
        api.then(lambda _: completion("select: 1"))
        environment = {"OPENAI_BASE_URL": api.base_url, "OPENAI_API_KEY": "secret"}
        result = await podium(
            *EMAIL, "-a", "openai:some-model", "-o", "json", cwd=tmp_path, environment=environment
        )
    assert result.code == 0, result.err
    (found,) = json.loads(result.out)
    assert found["attempts"] == 12
    assert found["turns"] == 1
    assert set(api.authorizations) == {"Bearer secret"}


async def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    for arguments, text in (
        (("-a", "baseline:best"), "has no baseline 'best'; it has random, scripted"),
        (("-a", "human:me"), "got --agent 'human:me'; allowed are a policy"),
        (("-a", "baseline:random", "--split", "dev"), "no split 'dev'; it has train, heldout"),
        (("-a", "baseline:random", "--set", "max_results"), "'max_results' is not KEY=VALUE"),
        (("-a", "baseline:random", "--set", "max_results=0"), "environment.config.max_results"),
    ):
        result = await podium(*EMAIL, *arguments, cwd=tmp_path)
        assert result.code == 2, (arguments, result.err)
        assert text in result.err, result.err
    result = await podium("eval", "chess", "-a", "baseline:random", cwd=tmp_path)
    assert result.code == 5
    assert "no environment 'chess'" in result.err
