"""Whoever meets a reason finds it in docs/operate.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from podium.core.findings import REASONS
from podium.core.skip_reasons import NO_JUDGE_ANSWERS

ROOT = Path(__file__).parents[3]


def failures(code: str) -> Iterator[str]:
    """The reasons with which a JobFailedError is raised."""
    if "JobFailedError" not in code:
        return
    raised = (node.exc for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Raise))
    for error in raised:
        if isinstance(error, ast.Call) and getattr(error.func, "id", "") == "JobFailedError":
            for each in ast.walk(error):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield from re.findall(r"^[A-Z]+_[A-Z_]+$", each.value)


def test_every_finding_of_the_coach_is_in_the_guide() -> None:
    guide = (ROOT / "docs/operate.md").read_text()
    assert sorted(name for name in REASONS if f"| `{name}` |" not in guide) == []


def test_every_reason_of_a_wait_or_a_failure_is_in_the_guide() -> None:
    found = {NO_JUDGE_ANSWERS}
    for path in (ROOT / "services/controller/podium_controller").rglob("*.py"):
        code = path.read_text()
        found |= set(re.findall(r'"((?:TRAINER|CLUSTER|ENVIRONMENT)_[A-Z_]+)"', code))
        found |= set(failures(code))
    found -= {"TRAINER_BUSY"}
    assert {"TRAINER_UNSCHEDULABLE", "JUDGE_BUDGET_SPENT", "CLUSTER_FORBIDDEN"} <= found
    guide = (ROOT / "docs/operate.md").read_text()
    assert sorted(name for name in found if f"`{name}`" not in guide) == []
