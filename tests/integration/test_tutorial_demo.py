"""S46: `make demo` in miniature: its own code from an empty folder to a trained policy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = (
    "rollout.groups_per_step=2",
    "rollout.group_size=4",
    "rollout.episode.max_turns=2",
    "evaluation.scenarios=2",
)


@pytest.mark.engine
@pytest.mark.long
@pytest.mark.timeout(600)
def test_s46_the_demo_trains_and_tells_its_numbers_without_a_gpu_or_a_key(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if "API_KEY" not in name}
    command = [sys.executable, "-m", "podium.cli.demo", "--steps", "1", "--seed", "3"]
    command += [part for setting in SMALL for part in ("--set", setting)]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path)],
        cwd=ROOT,
        env={**kept, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "result.json").read_text())
    assert (found["seed"], found["steps"], found["n"]) == (3, 1, 2)
    assert found["train_seconds"] > 0
    for when in ("before", "after"):
        assert 0 <= found[when]["low"] <= found[when]["success"] <= found[when]["high"] <= 1
    assert "data-chart=" in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "history.json").read_text())
    assert "chat with the trained policy" in done.stdout
    # Nothing is left running.
    assert not (tmp_path / "stack/up.json").exists()
