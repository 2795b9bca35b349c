"""The batches that one job trains on, in the order that its specification names."""

from __future__ import annotations

import functools
from typing import Protocol

from podium.core.contract.rollout import is_ready_first

from podium_controller.domain.ports import JobRecord, Ledger
from podium_controller.pools.pools import Pool
from podium_controller.training import step_span
from podium_controller.training.collector import Collector, StepBatch
from podium_controller.training.concurrency import Concurrency
from podium_controller.training.draws import Draws
from podium_controller.training.group_sources import ClientGroups, DrawnGroups, RolloutGroups
from podium_controller.training.judging import Scoring
from podium_controller.training.prefetch import Prefetch
from podium_controller.training.ready_first import ReadyFirst
from podium_controller.training.reporter import Reporter
from podium_controller.training.sources import Sources


class Batches(Protocol):
    """Of coming steps."""

    def advance(self, version: int) -> None:
        """Version `version` is served: begins all that this allows."""

    def is_ready(self, step: int) -> bool:
        """Whether `take` would not have to wait."""

    async def take(self, step: int) -> StepBatch:
        """The groups of the next step, when they are there."""

    async def close(self) -> None:
        """Ends what is being collected; stored groups stay stored."""


async def batches_of(
    job: JobRecord,
    client: ClientGroups | None,
    sources: Sources,
    scoring: Scoring,
    ledger: Ledger,
    reporter: Reporter,
    pool: Pool,
) -> Batches:
    """Those of a job as the ledger has it; `client` brings its groups if it is one's."""
    spec, rollout = job.spec, job.spec.rollout
    begin_span = functools.partial(step_span.begin, job.id, job.trace_parent)
    if client is None and is_ready_first(rollout):
        mixture, drawn = sources.mixture(), await ledger.drawn(job.id)
        made = ReadyFirst(
            job.id,
            spec,
            DrawnGroups(job.id, rollout, await sources.for_training(), sources.mixture()),
            scoring,
            ledger,
            reporter,
            begin_span,
            Draws.restored(mixture, drawn.state)
            if drawn
            else Draws(mixture, rollout.groups_per_step, job.completed_steps),
            drawn.step if drawn else job.completed_steps,
            Concurrency(job.id, rollout, pool, reporter),
        )
        await made.open()
        return made
    source = client or RolloutGroups(
        job.id, rollout, await sources.for_training(), sources.mixture()
    )
    collector = Collector(job.id, spec, source, scoring, ledger, reporter, begin_span)
    return Prefetch(collector, spec.training.steps, rollout.max_staleness)
