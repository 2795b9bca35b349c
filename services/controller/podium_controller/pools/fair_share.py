"""Whose group of episodes starts next at a pool that several jobs share.

Max-min fairness over episodes in flight, first between projects by their
weights, then between the jobs of each. A job alone is not bound at all; as
soon as a second one has work, the first starts no more until both have their
parts. What runs is never taken back.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from podium_controller.domain import metrics
from podium_controller.domain.waits import NOTHING, OnWait, Wait
from podium_controller.pools.projects import Projects


@dataclass
class _Group:
    """A group that waits or runs; its episodes are what it takes of the pool."""

    episodes: int
    started: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class _Job:
    """A job with groups here."""

    id: str
    project: str
    running: int = 0
    """Episodes."""
    last_start: int = 0
    waiting: deque[_Group] = field(default_factory=deque)


class FairShare:
    """Whose group runs next at one pool."""

    def __init__(
        self,
        pool: str,
        episodes: int,
        projects: Projects,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`episodes` are those that jobs in competition have in flight together."""
        self._pool = pool
        self._episodes = episodes
        self._projects = projects
        self._jobs: dict[str, _Job] = {}
        self._starts = 0
        self._clock = clock
        self._used: defaultdict[str, float] = defaultdict(float)
        self._idle = 0.0
        self._since = clock()

    @asynccontextmanager
    async def share(
        self, job_id: str, project: str, episodes: int, on_wait: OnWait
    ) -> AsyncIterator[None]:
        """Waits until the group may run; the block is to run it.

        Args:
            on_wait: told when the job stands still for its project's share, and
                NOTHING when it does not any more.
        """
        job = self._jobs.get(job_id)
        if job is None:
            job = self._jobs[job_id] = _Job(job_id, project)
        group = _Group(episodes)
        job.waiting.append(group)
        self._start_all()
        try:
            if not job.running and not group.started.is_set():
                await on_wait(self._share_wait(project))
            await group.started.wait()
            await on_wait(NOTHING)
            yield
        finally:
            self._count_use()
            if group.started.is_set():
                job.running -= group.episodes
            else:
                job.waiting.remove(group)
            if not job.running and not job.waiting:
                self._jobs.pop(job_id, None)
            self._start_all()

    def running(self, job_id: str) -> int:
        """A job's episodes in flight."""
        job = self._jobs.get(job_id)
        return job.running if job is not None else 0

    def part(self, job_id: str) -> float:
        """A job's episodes in flight by its part of all; 1 where it is alone or has none."""
        job, running = self._jobs.get(job_id), sum(each.running for each in self._jobs.values())
        if job is None or not job.running:
            return 1.0
        return job.running / running * self._episodes / self._part(job)

    def take_use(self) -> tuple[dict[str, float], float]:
        """The seconds since the last call: each job's part of them, and those of no episode.

        At each moment the jobs' parts are as their episodes in flight are.
        """
        self._count_use()
        used, idle = dict(self._used), self._idle
        self._used.clear()
        self._idle = 0.0
        return used, idle

    def _count_use(self) -> None:
        now = self._clock()
        seconds, self._since = now - self._since, now
        running = sum(job.running for job in self._jobs.values())
        if not running:
            self._idle += seconds
            return
        for job in self._jobs.values():
            if job.running:
                self._used[job.id] += seconds * job.running / running

    def _start_all(self) -> None:
        self._count_use()
        while (job := self._next()) is not None:
            group = job.waiting.popleft()
            self._starts += 1
            job.last_start = self._starts
            job.running += group.episodes
            group.started.set()
        self._show()

    def _next(self) -> _Job | None:
        """Of the jobs whose first group may start, the one that has least."""
        waiting = [job for job in self._jobs.values() if job.waiting]
        if not waiting:
            return None
        in_project = self._in_project()
        ready = [job for job in waiting if self._may(job, in_project)]

        def has(job: _Job) -> tuple[float, int, int]:
            weight = self._projects.of(job.project).weight
            return in_project[job.project] / weight, job.running, job.last_start

        return min(ready, key=has, default=None)

    def _may(self, job: _Job, in_project: Counter[str]) -> bool:
        wanted = job.waiting[0].episodes
        share = self._projects.of(job.project).max_pool_share
        already = in_project[job.project]
        # One group at least: a share smaller than that would be none.
        if share is not None and already and already + wanted > share * self._episodes:
            return False
        if len(self._jobs) == 1 or not job.running:
            return True
        room = in_project.total() + wanted <= self._episodes
        return room or job.running + wanted <= self._part(job)

    def _part(self, job: _Job) -> float:
        """Episodes that are the job's while all that have work here want more than there is."""
        weights = {
            each.project: self._projects.of(each.project).weight for each in self._jobs.values()
        }
        of_project = sum(each.project == job.project for each in self._jobs.values())
        return self._episodes * weights[job.project] / sum(weights.values()) / of_project

    def _in_project(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for job in self._jobs.values():
            found[job.project] += job.running
        return found

    def _share_wait(self, project: str) -> Wait:
        text = f"the project {project!r} has as many episodes at the pool {self._pool!r}"
        share = self._projects.of(project).max_pool_share
        return Wait("PROJECT_POOL_SHARE", f"{text} as its maxPoolShare of {share} allows")

    def _show(self) -> None:
        running: Counter[str] = Counter()
        for project, episodes in self._in_project().items():
            running[self._projects.label(project)] += episodes
        for label in self._projects.labels():
            metrics.POOL_EPISODES.labels(self._pool, label).set(running[label])
        waiting = sum(len(job.waiting) for job in self._jobs.values())
        metrics.POOL_WAITING.labels(self._pool).set(waiting)
