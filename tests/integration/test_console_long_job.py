"""A long job in the real controller's store, seen in a real Chromium: the benchmark, small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import program

ROOT = Path(__file__).parents[2]
STEPS = 60


@pytest.mark.full
def test_no_answer_of_a_long_jobs_pages_is_great_and_a_second_look_brings_what_is_new(
    tmp_path: Path,
) -> None:
    program("chromium", "chromium")
    size = ["--steps", str(STEPS), "--groups", "1", "--attempts", "1", "--repeats", "1"]
    output = tmp_path / "console.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench.console", *size, "--output", str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = json.loads(output.read_text())["pages"]
    assert {name for name in pages if isinstance(pages[name], list)} == {
        "jobs",
        "a job",
        "two runs",
        "episodes",
        "an episode",
    }
    for name, looks in pages.items():
        if isinstance(looks, list):
            assert looks[0]["greatest_bytes"] < 1_000_000, name
    # Every page of the list was turned.
    assert pages["the list's pages"]["episodes"] == STEPS - 1
    # An open page was told of a step, and one that is opened again asked for no other.
    again = pages["a second look"]
    assert again["first_points"] == STEPS - 1
    assert again["second_points"] == STEPS
    assert again["second_after"] == str(STEPS)
    assert again["second_bytes"] < again["first_bytes"] / 5
