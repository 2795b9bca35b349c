"""Defaults of the rollout that hang together, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from podium.core.contract import (
    apply_defaults,
    client_rollout_violations,
    complete_rollout,
    rollout_violations,
)
from podium.core.contract.rollout import attempts_allowed, is_ready_first
from podium.types.v1 import spec_pb2

IN_FLIGHT = spec_pb2.WEIGHT_UPDATE_IN_FLIGHT
READY, FIXED = spec_pb2.GROUP_ORDER_READY, spec_pb2.GROUP_ORDER_FIXED


def completed(**fields: Any) -> spec_pb2.RolloutSpec:
    return complete_rollout(apply_defaults(spec_pb2.RolloutSpec(**fields)))


def test_on_policy_a_step_has_its_own_groups_and_no_others() -> None:
    rollout = completed()
    assert (rollout.group_order, rollout.dynamic_sampling) == (FIXED, False)
    assert attempts_allowed(rollout) == rollout.groups_per_step
    assert not rollout.HasField("max_attempted_groups")


def test_ahead_of_training_groups_train_as_they_become_ready() -> None:
    rollout = completed(max_staleness=1, groups_per_step=4)
    assert is_ready_first(rollout)
    assert rollout.dynamic_sampling
    assert attempts_allowed(rollout) == 12
    assert complete_rollout(completed(max_staleness=1, groups_per_step=4)) == rollout
    assert rollout_violations(rollout, "rollout") == []


def test_a_job_from_before_there_were_orders_keeps_its_own() -> None:
    rollout = spec_pb2.RolloutSpec(groups_per_step=4, max_staleness=2)
    assert not is_ready_first(rollout)
    assert attempts_allowed(rollout) == 4


@pytest.mark.parametrize(
    ("fields", "path", "says"),
    [
        ({"group_order": READY}, "group_order", "a max_staleness above 0"),
        ({"weight_update": IN_FLIGHT}, "weight_update", "allowed is WEIGHT_UPDATE_DRAIN, or"),
        ({"max_attempted_groups": 9}, "max_attempted_groups", "without dynamic_sampling"),
        (
            {"dynamic_sampling": True, "max_attempted_groups": 7},
            "max_attempted_groups",
            "from groups_per_step (8) on",
        ),
        (
            {"max_staleness": 1, "dynamic_sampling": False, "max_attempted_groups": 9},
            "max_attempted_groups",
            "allowed is none",
        ),
        (
            {"adaptive_concurrency": True, "max_concurrent_groups": 9},
            "adaptive_concurrency",
            "got true without GROUP_ORDER_READY",
        ),
        (
            {"adaptive_concurrency": True, "max_staleness": 1},
            "adaptive_concurrency",
            "got true with a max_concurrent_groups of 8",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(fields: dict[str, Any], path: str, says: str) -> None:
    (found,) = rollout_violations(completed(**fields), "job.spec.rollout")
    assert found.field == f"job.spec.rollout.{path}"
    assert says in found.description


def test_weights_come_in_flight_where_old_tokens_may_train_and_whoever_brings_them() -> None:
    assert completed().weight_update == spec_pb2.WEIGHT_UPDATE_DRAIN
    stale = completed(max_staleness=1, weight_update=IN_FLIGHT)
    assert rollout_violations(stale, "rollout") == []
    of_a_client = spec_pb2.RolloutSpec(max_staleness=1, weight_update=IN_FLIGHT)
    assert client_rollout_violations(of_a_client, "rollout") == []
    of_a_client.max_staleness = 0
    (found,) = client_rollout_violations(of_a_client, "rollout")
    assert found.field == "rollout.weight_update"


def test_a_client_brings_its_groups_itself() -> None:
    rollout = spec_pb2.RolloutSpec(max_staleness=1, dynamic_sampling=False)
    (found,) = client_rollout_violations(rollout, "job.spec.rollout")
    assert found.field == "job.spec.rollout.dynamic_sampling"
    assert "whose batches say" in found.description


def test_the_queue_bounds_what_a_job_collects_itself_ahead_of_training() -> None:
    fields = {"adaptive_concurrency": True, "max_concurrent_groups": 9}
    assert rollout_violations(completed(max_staleness=1, **fields), "rollout") == []
    (found,) = client_rollout_violations(spec_pb2.RolloutSpec(**fields), "rollout")
    assert found.field == "rollout.adaptive_concurrency"
