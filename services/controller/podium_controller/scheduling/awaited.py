"""For which trainer pools, that are not there, jobs wait: what a pool that scales is started by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from podium_controller.domain.ports import JobRecord
from podium_controller.domain.waits import NOTHING, TRAINER_POOL_STARTING, Wait
from podium_controller.pools.projects import project_of
from podium_controller.scheduling.admission_queue import AdmissionQueue
from podium_controller.scheduling.trainer_places import Place, holds_of, starting

Waiting = Sequence[tuple[JobRecord, Wait]]


def awaited(
    queue: AdmissionQueue, still: Waiting, gpus: Callable[[JobRecord], int]
) -> tuple[Waiting, Counter[str] | None]:
    """What jobs wait for, and by trainer pool how many would run now if it answered.

    A job counts for one pool, and not where something else keeps it: limits, a project's budget,
    its inference pool. Each has its place before the next is looked at, so that no more pools are
    started than the jobs fill.

    Args:
        queue: after all that may run have taken their places.
        still: the others, in their order.
        gpus: of a job's own trainer.

    Returns:
        The waits as jobs are told them, and the numbers; None as long as a pool that would change
        them is still to be heard.
    """
    known = all(wait != NOTHING for _, wait in still)
    if not still or not queue.misses_trainers:
        return still, Counter() if known else None
    there = queue.if_trainers_answered()
    told: list[tuple[JobRecord, Wait]] = []
    jobs: Counter[str] = Counter()
    for job, wait in still:
        shown = wait
        found = there.assign(job, gpus(job)) if wait != NOTHING else wait
        if isinstance(found, Wait):
            known = known and found != NOTHING
            # Nobody starts a trainer for a job that something else keeps.
            if wait.reason == TRAINER_POOL_STARTING and found != NOTHING:
                shown = found
        elif found.trainer_pool is not None:
            pool = found.trainer_pool
            project, holds = project_of(job.spec), holds_of(job.spec)
            there.take(Place(job.id, found.pool.name, project, 0, pool.name, holds))
            jobs[pool.name] += 1
            if pool.scales_to_zero:
                shown = starting([pool.name], queue.trainer_error(pool.name))
        told.append((job, shown))
    return told, jobs if known else None
