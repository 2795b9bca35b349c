"""`podium env check`: exit codes, JSON, and what is told of a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from podium.cli.exits import Exit
from podium.cli.main import run

TASK = """
from podium.environments import Environment, Observation, Scenario, StepResult, user

print("loaded")

class Mine(Environment):
    name = "mine"
    splits = ("train", "heldout")
    def scenarios(self, split): return [Scenario(f"{split}-{n}", {"n": split}) for n in range(2)]
    async def reset(self, scenario, seed): return Observation([user("Say something.")])
    async def step(self, action):
        return StepResult(Observation(), reward=REWARD, terminated=True)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, name: str, reward: str) -> str:
    (folder / f"{name}.py").write_text(TASK.replace("REWARD", reward))
    return f"{name}.py"


def test_a_sound_task_is_0_and_its_json_is_all_that_is_printed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(folder, "checked_sound", "float(len(action.content) % 7)")
    assert run(["env", "check", file, "-o", "json"]) == Exit.OK
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["ok"], found["findings"], found["scenarios"]["train"]) == (True, [], 2)
    assert "loaded" in err


def test_an_error_is_1_and_told_with_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(folder, "checked_broken", "float(action.content)")
    assert run(["env", "check", file]) == Exit.FAILED
    out, err = capsys.readouterr()
    assert "FAIL  step" in out
    assert "checked_broken.py:12: step raises ValueError" in out
    assert "1 error, 0 warnings" in err


def test_warnings_count_where_that_is_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(folder, "checked_alike", "0.0")
    assert run(["env", "check", file]) == Exit.OK
    assert run(["env", "check", file, "--strict"]) == Exit.FAILED
    assert "warn  reward" in capsys.readouterr().out


def test_what_is_no_environment_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    for name, said in (("absent.py", "no file absent.py"), ("nonsense", "no environment")):
        assert run(["env", "check", name]) == Exit.USAGE
        assert said in capsys.readouterr().err


def test_a_wrong_option_is_told_once_with_how_it_is_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["env", "check", "2048", "--set", "goal=3"]) == Exit.FAILED
    out, err = capsys.readouterr()
    assert out.count("environment.config.goal") == 2, "once told, once in how to give it"
    assert "--set goal=VALUE here, and in a job as environment.config.goal" in out
    assert "1 error, 0 warnings" in err


def test_what_an_option_names_may_lie_in_this_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    # As a console script starts; others may have added the folder in this process.
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert run(["env", "check", "tic_tac_toe", "--scenarios", "1"]) == Exit.OK
    assert "" in sys.path, "a taskset of verifiers is imported by its name"
