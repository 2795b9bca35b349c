"""Says when a step has fewer groups that can teach than it asks for."""

from __future__ import annotations

from collections.abc import Sequence

from podium.core.contract.rollout import attempts_allowed
from podium.types.v1 import spec_pb2

from podium_controller.training.reporter import Reporter


class Shortfall:
    """Of one job that replaces groups. Said when it begins: eighteen times say no more than one."""

    def __init__(self, rollout: spec_pb2.RolloutSpec, reporter: Reporter) -> None:
        self._rollout = rollout
        self._reporter = reporter
        self._is_reported = False

    async def look(self, step: int, teach: Sequence[bool]) -> None:
        """At the groups that a step trains: whether each can teach."""
        wanted, found = self._rollout.groups_per_step, sum(teach)
        is_short = found < wanted and len(teach) >= attempts_allowed(self._rollout)
        if is_short and not self._is_reported:
            await self._reporter.warn(
                f"step {step} has attempted {len(teach)} groups, the most that"
                f" rollout.max_attempted_groups allows, and {found} of the {wanted} that it asks"
                " for can teach; it trains on those, and so do later steps of which it is true",
                step,
            )
        self._is_reported = is_short
