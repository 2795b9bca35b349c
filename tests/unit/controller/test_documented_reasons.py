"""Whoever meets a reason finds it in docs/operate.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_reason_of_a_wait_or_a_failure_is_in_the_guide() -> None:
    code = "\n".join(
        path.read_text() for path in (ROOT / "services/controller/podium_controller").rglob("*.py")
    )
    waits = re.findall(r'"((?:TRAINER|CLUSTER|ENVIRONMENT)_[A-Z_]+)"', code)
    failures = re.findall(r"raise JobFailedError\(.*?^ {8,}\)", code, re.DOTALL | re.MULTILINE)
    told = {name for text in failures for name in re.findall(r'"([A-Z]+_[A-Z_]+)"', text)}
    found = (set(waits) | told) - {"TRAINER_BUSY"}
    assert {"TRAINER_UNSCHEDULABLE", "JUDGE_BUDGET_SPENT", "CLUSTER_FORBIDDEN"} <= found
    guide = (ROOT / "docs/operate.md").read_text()
    assert sorted(name for name in found if f"`{name}`" not in guide) == []
