"""What a job's `rollout` leaves open, and what in it contradicts itself."""

from __future__ import annotations

from collections.abc import Iterator

from podium.core.errors import Violation
from podium.types.v1 import spec_pb2

_ATTEMPTS = 3
"""Groups that a step may attempt for each that it asks for."""


def complete_rollout(rollout: spec_pb2.RolloutSpec) -> spec_pb2.RolloutSpec:
    """Writes the defaults that depend on other fields into `rollout`, in place, and returns it.

    The contract's own defaults are in it already.
    """
    if rollout.group_order == spec_pb2.GROUP_ORDER_UNSPECIFIED:
        ahead = rollout.max_staleness > 0
        rollout.group_order = spec_pb2.GROUP_ORDER_READY if ahead else spec_pb2.GROUP_ORDER_FIXED
    if not rollout.HasField("dynamic_sampling"):
        rollout.dynamic_sampling = is_ready_first(rollout)
    if rollout.dynamic_sampling and not rollout.HasField("max_attempted_groups"):
        rollout.max_attempted_groups = _ATTEMPTS * rollout.groups_per_step
    return rollout


def rollout_violations(rollout: spec_pb2.RolloutSpec, path: str) -> list[Violation]:
    """Every contradiction in a completed specification; `path` is where it stands."""
    return [Violation(f"{path}.{field}", text) for field, text in _contradictions(rollout)]


def client_rollout_violations(rollout: spec_pb2.RolloutSpec, path: str) -> list[Violation]:
    """What a job cannot have whose client brings the groups."""
    brought = [
        (
            field,
            "got a value for a job with a client, whose batches say which groups a step trains;"
            " allowed is none",
        )
        for field in ("group_order", "dynamic_sampling", "max_attempted_groups")
        if rollout.HasField(field)
    ]
    if rollout.adaptive_concurrency:
        brought.append(
            (
                "adaptive_concurrency",
                "got true for a job with a client, which collects its groups itself; allowed is"
                " false",
            )
        )
    found = [*brought, *_of_weights(rollout)]
    return [Violation(f"{path}.{field}", text) for field, text in found]


def is_ready_first(rollout: spec_pb2.RolloutSpec) -> bool:
    """Whether groups train in the order in which they become ready.

    Not in a job from before there was such an order, where the field is not set.
    """
    return rollout.group_order == spec_pb2.GROUP_ORDER_READY


def attempts_allowed(rollout: spec_pb2.RolloutSpec) -> int:
    """How many groups a step may attempt to have `groups_per_step` that can teach."""
    return rollout.max_attempted_groups if rollout.dynamic_sampling else rollout.groups_per_step


def _of_weights(rollout: spec_pb2.RolloutSpec) -> Iterator[tuple[str, str]]:
    if rollout.weight_update == spec_pb2.WEIGHT_UPDATE_IN_FLIGHT and rollout.max_staleness == 0:
        yield (
            "weight_update",
            "got WEIGHT_UPDATE_IN_FLIGHT with max_staleness 0, where every token is of the newest"
            " version; allowed is WEIGHT_UPDATE_DRAIN, or a max_staleness above 0",
        )


def _of_concurrency(rollout: spec_pb2.RolloutSpec) -> Iterator[tuple[str, str]]:
    if not rollout.adaptive_concurrency:
        return
    most, wanted = rollout.max_concurrent_groups, rollout.groups_per_step
    if not is_ready_first(rollout):
        yield (
            "adaptive_concurrency",
            "got true without GROUP_ORDER_READY, where a step waits for all of its groups; allowed"
            " is false, or GROUP_ORDER_READY with a max_staleness above 0",
        )
    elif most <= wanted:
        yield (
            "adaptive_concurrency",
            f"got true with a max_concurrent_groups of {most}, where there is nothing to adapt: it"
            f" begins at groups_per_step ({wanted}); allowed is false, or a greater"
            " max_concurrent_groups",
        )


def _contradictions(rollout: spec_pb2.RolloutSpec) -> Iterator[tuple[str, str]]:
    yield from _of_weights(rollout)
    if is_ready_first(rollout) and rollout.max_staleness == 0:
        yield (
            "group_order",
            "got GROUP_ORDER_READY with max_staleness 0, where the groups of a step are fixed;"
            " allowed is GROUP_ORDER_FIXED, or a max_staleness above 0",
        )
    yield from _of_concurrency(rollout)
    if rollout.HasField("max_attempted_groups"):
        most, wanted = rollout.max_attempted_groups, rollout.groups_per_step
        if not rollout.dynamic_sampling:
            yield (
                "max_attempted_groups",
                f"got {most} without dynamic_sampling, which alone attempts more than"
                " groups_per_step; allowed is none",
            )
        elif most < wanted:
            yield (
                "max_attempted_groups",
                f"got {most}; allowed are numbers from groups_per_step ({wanted}) on",
            )
