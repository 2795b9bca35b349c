"""What follows from a published version: its evaluation, aliases and retention."""

from __future__ import annotations

import math
from collections.abc import Mapping

from podium.core.errors import AbortedError
from podium.types.v1 import spec_pb2

from podium_controller.domain.registry import Registry
from podium_controller.training.recovery import Recovery

BEST = "best"
LOGGED = "val/reward"
"""What a client that evaluates by itself calls its measure; ART's name."""

LOSS = "val/loss"
"""Of the rows that supervised fine-tuning holds out."""

_RACES = 5


class Aliases:
    """Keeps one job's model in the registry in order."""

    def __init__(
        self, job_id: str, spec: spec_pb2.JobSpec, registry: Registry, recovery: Recovery
    ) -> None:
        self._job_id = job_id
        self._retention = spec.retention
        self._metric = spec.evaluation.best_metric
        self._lower_is_better = spec.evaluation.best_mode == spec_pb2.BEST_MODE_MIN
        if spec.HasField("client") and not self._metric:
            self._metric = LOGGED
        self._registry = registry
        self._recovery = recovery

    async def record(self, version: int, metrics: Mapping[str, float]) -> None:
        """Adds an evaluation's numbers to a version."""
        if metrics:
            await self._recovery.run(
                "registry",
                lambda: self._registry.record_evaluation(self._job_id, version, metrics),
            )

    async def measured(self, version: int, loss: float) -> None:
        """Takes in a version's loss on held-out rows, the less the better.

        One that is no number decides nothing.
        """
        if not math.isfinite(loss):
            return
        await self.record(version, {LOSS: loss, LOGGED: -loss})
        if self._metric == LOGGED:
            await self.promote(version, -loss)

    async def promote(self, version: int, value: float) -> bool:
        """Points `best` at the version if none was better; True when it does.

        A tie stays with the older version. Whoever moves the alias in between
        is not overwritten: it is read and compared again.

        Raises:
            AbortedError: it was moved again and again.
        """
        return await self._recovery.run("registry", lambda: self._promote(version, value))

    async def retain(self, awaited: int | None = None) -> None:
        """Deletes the versions that the job's rule does not keep.

        `awaited` stays too: the version whose state is on its way; None for none.
        """
        rule = self._retention
        await self._recovery.run(
            "registry",
            lambda: self._registry.apply_retention(
                self._job_id,
                rule.keep_last,
                rule.keep_best if self._metric else 0,
                self._metric,
                self._lower_is_better,
                [] if awaited is None else [awaited],
            ),
        )

    def _is_better(self, value: float, best: float | None) -> bool:
        if best is None:
            return True
        return value < best if self._lower_is_better else value > best

    async def _promote(self, version: int, value: float) -> bool:
        for attempt in range(1, _RACES + 1):
            best = await self._registry.alias(self._job_id, BEST)
            expected = -1
            if best is not None:
                expected = best.manifest.version
                if expected == version:
                    return True
                if not self._is_better(value, best.evaluation_metrics.get(self._metric)):
                    return False
            try:
                await self._registry.set_alias(self._job_id, BEST, version, expected)
            except AbortedError:
                if attempt == _RACES:
                    raise
            else:
                return True
        raise AssertionError("unreachable")
