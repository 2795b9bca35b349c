"""`podium eval` of a policy: through the rollout service and the engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from podium.local.launcher import Launcher
from support.cli import invoke
from support.jobs import at_the_base_model

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.timeout(300),
]


async def test_a_policy_is_measured_beside_a_baseline(stack: Launcher, tmp_path: Path) -> None:
    await at_the_base_model(stack)
    services = {
        "PODIUM_ADDRESS": stack.address("controller"),
        "PODIUM_INFERENCE_ADDRESS": stack.address("inference"),
        "PODIUM_ROLLOUT_ADDRESS": stack.address("rollout"),
    }
    arguments = ("--limit", "4", "--temperature", "0", "--max-tokens", "16", "--max-turns", "3")
    result = await invoke(
        *("eval", "email_search", "-a", "base", "-a", "baseline:scripted", "-o", "json"),
        *arguments,
        cwd=tmp_path,
        environment=services,
    )
    assert result.code == 0, result.err
    policy, baseline = json.loads(result.out)
    assert policy["attempts"] == baseline["attempts"] == 4
    assert policy["failed"] == 0
    assert [one["scenario_id"] for one in policy["episodes"]] == [
        one["scenario_id"] for one in baseline["episodes"]
    ]
    # An untrained model: it acts, and is not the script.
    assert all(1 <= one["turns"] <= 3 for one in policy["episodes"])
    assert baseline["success"] == 1
    assert baseline["compared_with_first"]["scenarios"] == 4
