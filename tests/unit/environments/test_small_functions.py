"""The tasks that examples/small_functions/tasks.py writes are what its job file takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from podium.cli.job.submit import load as job_of
from podium.environments import load
from podium.environments.coding.scenarios import read
from podium.environments.serving.convert import unstruct
from support.examples import example

JOB = Path(__file__).parents[3] / "examples/small_functions/job.yaml"


def test_the_small_functions_can_be_graded_and_none_is_held_out_and_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = job_of(str(JOB), ()).spec.environment
    config = unstruct(task.config)
    rows = [json.dumps(row) for row in example("small_functions/tasks").tasks()]
    (tmp_path / config["scenarios"]).write_text("\n".join(rows))
    monkeypatch.setenv("PODIUM_SCENARIOS_DIR", str(tmp_path))
    environment = load(task.name)(config)
    problems = {
        split: [read(each.data) for each in environment.listed(split)]
        for split in ("train", "heldout")
    }
    assert {split: len(found) for split, found in problems.items()} == {"train": 96, "heldout": 60}
    asked = {split: {each.text.splitlines()[1] for each in problems[split]} for split in problems}
    assert not asked["train"] & asked["heldout"]
    for problem in (each for found in problems.values() for each in found):
        # One answer for all hidden tests would be a guess that pays.
        assert len({json.dumps(case.output) for case in problem.hidden}) > 1, problem.text
