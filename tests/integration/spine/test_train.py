"""`podium train` of a new task with a stack of its own: six processes, the real model, one step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from podium.local.launcher import upfile
from podium.local.launcher.layout import SERVICES
from support.cli import podium

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(1200)]
SMALL = {
    "evaluation.scenarios": "2",
    "evaluation.greedy": "false",
    "rollout.group_size": "4",
    "rollout.groups_per_step": "2",
}


async def test_the_first_tasks_commands_train_and_leave_nothing_running(tmp_path: Path) -> None:
    made = await podium("init", "mytask", cwd=tmp_path)
    assert made.code == 0, made.err
    task = tmp_path / "mytask"
    checked = await podium("env", "check", "task.py", cwd=task)
    assert checked.code == 0, checked.out
    less = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    environment = {"PODIUM_INFERENCE_KV_CACHE_BYTES": str(256 << 20)}
    done = await podium(
        *("train", "task.py", "--steps", "1", "--ready-timeout", "900", *less),
        cwd=task,
        environment=environment,
        within=1100,
    )
    assert done.code == 0, done.err
    assert "starting the six services" in done.err
    assert re.search(r"^step 1/1  reward \d", done.err, re.MULTILINE)
    assert "evaluation of version 1, sampled: success" in done.err
    assert "data-chart=" in (task / "mytask.html").read_text()
    # What it started has ended, each service by itself.
    assert upfile.read(task / ".podium") is None
    assert len(re.findall(r"stopped +exit code 0$", done.err, re.MULTILINE)) == len(SERVICES)
    assert "Traceback" not in done.err
