"""`environment.config.scenarios`: any environment takes its scenarios from a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.environments import load
from podium.environments.serving.convert import struct, unstruct
from podium.environments.serving.servicer import scenario_page
from podium.types.v1 import spec_pb2
from podium_rollout.adapters.environments import Environments
from support.cli import invoke
from support.guess_environment import Guess


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PODIUM_SCENARIOS_DIR", str(tmp_path))
    rows = [{"id": f"mine-{n}", "split": "train", "data": {"answer": n}} for n in range(5)]
    rows.append({"id": "held", "split": "heldout", "data": {"answer": 9}})
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path


def ids(scenarios: Any, split: str = "train", **config: Any) -> list[str]:
    return [s.id for s in Guess({"scenarios": scenarios, **config}).listed(split)]


def refused(scenarios: Any) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        Guess({"scenarios": scenarios}).listed("train")
    return str(caught.value.violations[0])


def test_a_file_takes_the_place_of_the_environments_own_scenarios(folder: Path) -> None:
    assert ids("tasks.jsonl") == [f"mine-{n}" for n in range(5)]
    assert ids({"path": "tasks.jsonl", "limit": 2}, tools=True) == ["mine-0", "mine-1"]
    assert ids("tasks.jsonl", "heldout") == ["held"]
    assert [s.id for s in Guess().listed("heldout")] == ["digit-5", "digit-6", "digit-7"]


async def test_the_rollout_service_lists_and_plays_them(folder: Path) -> None:
    environments = Environments()
    config = {"scenarios": {"path": "tasks.jsonl", "columns": {"id": None}, "limit": 4}}
    spec = spec_pb2.EnvironmentSpec(name="tic_tac_toe", config=struct(config))
    first, token = await environments.scenarios(spec, "train", 3, "")
    rest, end = await environments.scenarios(spec, "train", 3, token)
    assert [unstruct(s.data)["data"]["answer"] for s in (*first, *rest)] == [0, 1, 2, 3]
    assert {s.split for s in first} == {"train"}
    assert end == ""
    # What an environment cannot begin with, it refuses itself.
    with pytest.raises(InvalidArgumentError):
        await load("tic_tac_toe")(config).reset(
            Guess({"scenarios": "tasks.jsonl"}).listed("train")[0], 1
        )


def test_a_changed_file_is_read_again_and_an_unchanged_one_is_not(folder: Path) -> None:
    before = Guess({"scenarios": "tasks.jsonl"}).listed("train")
    assert Guess({"scenarios": "tasks.jsonl"}).listed("train") is before
    with (folder / "tasks.jsonl").open("a") as file:
        file.write('{"id": "new", "split": "train", "data": {"answer": 7}}\n')
    assert ids("tasks.jsonl")[-1] == "new"


@pytest.mark.parametrize(
    ("scenarios", "told"),
    [
        ("no.jsonl", "environment.config.scenarios: path: got 'no.jsonl'; there is no such file"),
        ("../out.jsonl", "path: got '../out.jsonl'; allowed are paths below the folder"),
        ("link.jsonl", "path: got 'link.jsonl'; allowed are paths below the folder"),
        ({"path": "tasks.jsonl", "heldout": 2}, "environment.config.scenarios.heldout: got 2"),
        (
            {"path": "tasks.jsonl", "colums": 1},
            "environment.config.scenarios.colums: unknown option",
        ),
        ({}, "environment.config.scenarios: got {}: Value error, set either path or dataset"),
        (3, "environment.config.scenarios: got 3: Input should be a valid dictionary"),
        ({"path": "tasks.jsonl", "splits": {"heldout": "train"}}, "tasks.jsonl:1: split: got"),
        ({"path": "one.jsonl", "heldout": 0}, "one.jsonl:1: data.x: got 9007199254740993"),
    ],
)
def test_what_is_wrong_with_it_is_named(folder: Path, scenarios: Any, told: str) -> None:
    outside = folder.parent / "out.jsonl"
    outside.write_text('{"secret": 1}\n')
    (folder / "link.jsonl").symlink_to(outside)
    (folder / "one.jsonl").write_text('{"data": {"x": 9007199254740993}}\n')
    if isinstance(scenarios, Mapping) and "splits" in scenarios:
        scenarios = {**scenarios, "splits": {"train": "training"}}
    assert told in refused(scenarios)


def test_absolute_paths_lie_below_the_folder_too(folder: Path) -> None:
    assert ids(str(folder / "tasks.jsonl"))
    assert "allowed are paths below" in refused("/etc/passwd")


def test_an_empty_split_is_named(folder: Path) -> None:
    (folder / "few.jsonl").write_text('{"split": "train", "n": 1}\n')
    with pytest.raises(InvalidArgumentError, match=r"few.jsonl: has no scenario of the split"):
        Guess({"scenarios": "few.jsonl"}).listed("heldout")
    with pytest.raises(InvalidArgumentError, match="has no scenario of the split 'heldout'"):
        scenario_page(Guess, {"scenarios": "few.jsonl"}, "heldout", 10, "")


def test_without_a_folder_no_file_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PODIUM_SCENARIOS_DIR")
    with pytest.raises(
        FailedPreconditionError, match="PODIUM_SCENARIOS_DIR does not say"
    ) as caught:
        Guess({"scenarios": "tasks.jsonl"}).listed("train")
    assert caught.value.reason == "NO_SCENARIOS_DIR"


async def test_an_evaluation_reads_them_where_it_is_started(tmp_path: Path) -> None:
    (tmp_path / "seeds.jsonl").write_text(
        "".join(f'{{"split": "heldout", "seed": {n}}}\n' for n in range(3))
    )
    source = "scenarios={path: seeds.jsonl}"
    arguments = ("-a", "baseline:random", "--set", "id=FrozenLake-v1", "--set", source)
    result = await invoke("eval", "gymnasium", *arguments, "-o", "json", cwd=tmp_path)
    assert result.code == 0, result.err
    (found,) = json.loads(result.out)
    assert (found["attempts"], found["failed"]) == (3, 0)
