"""What is shown of a job, from when until when."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from podium.core.findings import REASONS
from podium_controller.domain import metrics, reasons
from prometheus_client import REGISTRY

GUIDE = Path(__file__).parents[3] / "docs/operate.md"


def shown(job_id: str) -> dict[str, dict[str, float]]:
    """What is shown of a job: by name, the values by their other labels."""
    found: dict[str, dict[str, float]] = {}
    for family in REGISTRY.collect():
        for sample in family.samples:
            if sample.labels.get("job_id") == job_id and not sample.name.endswith("_created"):
                others = ",".join(v for k, v in sample.labels.items() if k != "job_id")
                name = sample.name.removeprefix("podium_controller_")
                found.setdefault(name, {})[others] = sample.value
    return found


def test_a_job_that_begins_shows_what_alerts_compare_with_and_an_end_takes_all_of_it() -> None:
    metrics.begin_job("m1", 3, 10, since_ns=5_000_000_000)
    found = shown("m1")
    assert found["step"] == {"": 3.0}
    assert found["step_target"] == {"": 10.0}
    # A controller that takes over says when the job last came forward, and not when it took over.
    assert found["last_progress_timestamp_seconds"] == {"": 5.0}
    # An increase from nothing to 1 is none to Prometheus.
    assert found["steps_total"] == {"": 0.0}
    assert found["trainer_ends_total"] == dict.fromkeys(metrics.TRAINER_REASONS, 0.0)
    metrics.stepped("m1", 4, {"reward_mean": 0.5, "staleness_max": 2.0}, 7_000_000_000)
    metrics.evaluated("m1", "greedy", {"reward": 0.25, "success": 1.0})
    metrics.waiting("m1", "TRAINER_LOST")
    metrics.count_group("m1", metrics.STALE)
    found = shown("m1")
    assert found["step"] == {"": 4.0}
    assert found["job_staleness_steps"] == {"": 2.0}
    assert found["evaluation_reward_mean"] == {"greedy": 0.25}
    assert found["job_groups_total"] == {"stale": 1.0}
    assert set(found["waiting_since_timestamp_seconds"]) == {"TRAINER_LOST"}
    metrics.forget_job("m1")
    assert shown("m1") == {}


def test_a_wait_counts_from_when_its_reason_came(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "time", lambda: now)

    def waits() -> dict[str, float]:
        return shown("m2").get("waiting_since_timestamp_seconds", {})

    metrics.waiting("m2", "TRAINER_STARTING")
    now = 200.0
    metrics.waiting("m2", "TRAINER_STARTING")
    assert waits() == {"TRAINER_STARTING": 100.0}
    metrics.waiting("m2", "TRAINER_UNSCHEDULABLE")
    assert waits() == {"TRAINER_UNSCHEDULABLE": 200.0}
    metrics.waiting("m2", "the environment's own\nwords")
    assert waits() == {"other": 200.0}
    metrics.waiting("m2", "")
    assert waits() == {}


def test_the_queue_shows_who_has_waited_longest_and_nobody_who_is_gone() -> None:
    def queue() -> dict[tuple[str, str], float]:
        return {
            (sample.labels["project"], sample.labels["reason"]): sample.value
            for family in REGISTRY.collect()
            for sample in family.samples
            if sample.name == "podium_controller_queued_since_timestamp_seconds"
        }

    metrics.show_queue(
        [
            ("a", "POOL_FULL", 3_000_000_000),
            ("a", "POOL_FULL", 2_000_000_000),
            ("b", "PROJECT_GPUS", 4_000_000_000),
        ]
    )
    assert queue() == {("a", "POOL_FULL"): 2.0, ("b", "PROJECT_GPUS"): 4.0}
    metrics.show_queue([("b", "PROJECT_GPUS", 4_000_000_000)])
    assert queue() == {("b", "PROJECT_GPUS"): 4.0}
    metrics.PER_LEADER[-1].clear()
    metrics.show_queue([])
    assert queue() == {}


def test_reasons_are_those_of_the_guide() -> None:
    told = set()
    for row in re.findall(r"^\| (`[A-Z_`, ]+`) \|", GUIDE.read_text(), re.MULTILINE):
        told |= set(re.findall(r"`([A-Z_]+)`", row))
    assert told == reasons.KNOWN | REASONS
    assert not reasons.KNOWN & REASONS
    assert reasons.bounded("ANYTHING") == reasons.OTHER
    assert reasons.bounded("") == ""
