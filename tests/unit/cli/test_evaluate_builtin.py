"""`podium eval` of every built-in task: its baseline against its weakest agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from podium.environments.catalog import builtin_names
from support.cli import invoke
from support.namespaces import REFUSAL

SCENARIOS = 4
BASELINES = {
    "2048": ("greedy", "random"),
    "coding": ("reference", "empty"),
    "email_search": ("scripted", "random"),
    "search_qa": ("scripted", "random"),
    "tic_tac_toe": ("perfect", "random"),
}
ADAPTERS = {"gymnasium", "mcp", "openenv", "verifiers"}
SOLVED = BASELINES.keys() - {"2048"}
"""What the baseline wins in eight turns."""


def test_every_built_in_task_is_measured_here() -> None:
    assert set(builtin_names()) == BASELINES.keys() | ADAPTERS


@pytest.mark.parametrize("name", BASELINES)
async def test_a_baseline_beats_the_weakest_agent(name: str, tmp_path: Path) -> None:
    if name == "coding" and REFUSAL:
        pytest.skip(REFUSAL)
    agents = [f"baseline:{baseline}" for baseline in BASELINES[name]]
    arguments = ("--limit", str(SCENARIOS), *(f"--agent={agent}" for agent in agents))
    result = await invoke("eval", name, *arguments, "-o", "json", cwd=tmp_path)
    assert result.code == 0, result.err
    found: list[dict[str, Any]] = json.loads(result.out)
    assert [each["agent"] for each in found] == agents
    for each in found:
        assert each["attempts"] == len(each["episodes"]) == SCENARIOS
        assert each["failed"] == 0
        assert len({episode["scenario_id"] for episode in each["episodes"]}) == SCENARIOS
    good, weak = found
    assert good["reward"] > weak["reward"]
    assert good["success"] == (1 if name in SOLVED else 0)
    assert weak["success"] < 1
