"""Who of those that wait may run now, and what the others wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from podium_controller.domain.ports import JobRecord
from podium_controller.domain.waits import NOTHING, Wait
from podium_controller.pools.pools import Offer, Pool, served
from podium_controller.pools.projects import Projects, project_of
from podium_controller.pools.trainer_pools import TrainerPool
from podium_controller.scheduling.trainer_places import Place, TrainerPlaces, held


@dataclass(frozen=True)
class QueueLimits:
    """Of the installation."""

    active_jobs: int
    jobs_per_pool: int
    """Of a pool that several share."""


@dataclass(frozen=True)
class Assignment:
    """Where a job may run."""

    pool: Pool
    trainer_pool: TrainerPool | None = None
    """None for a trainer of its own."""


class AdmissionQueue:
    """One look at the line: each job that may run takes its place before the next is looked at."""

    def __init__(
        self,
        limits: QueueLimits,
        projects: Projects,
        offers: Sequence[Offer],
        places: Iterable[Place],
        spent: Mapping[str, Wait] | None = None,
        trainers: TrainerPlaces | None = None,
    ) -> None:
        """`places` are those of the jobs that run; `spent` says of projects that have
        used up what they may what their jobs wait for."""
        self._trainers = trainers or TrainerPlaces()
        self._spent = spent or {}
        self._limits = limits
        self._projects = projects
        self._offers = offers
        self._jobs = 0
        self._jobs_of: Counter[str] = Counter()
        self._gpus_of: Counter[str] = Counter()
        self._in_pool: Counter[str] = Counter()
        self._places: list[Place] = []
        for place in places:
            self.take(place)

    @property
    def misses_trainers(self) -> bool:
        """Whether a trainer pool does not answer."""
        return bool(self._trainers.away)

    def trainer_error(self, pool: str) -> str:
        """Why a trainer pool does not answer."""
        return self._trainers.away[pool]

    def if_trainers_answered(self) -> AdmissionQueue:
        """The same line, with all places as they are taken now, if every trainer pool answered."""
        trainers = self._trainers.if_all_answered()
        return AdmissionQueue(
            self._limits, self._projects, self._offers, self._places, self._spent, trainers
        )

    def take(self, place: Place) -> None:
        """A job runs there now."""
        self._jobs += 1
        self._jobs_of[place.project] += 1
        self._gpus_of[place.project] += place.gpus
        self._in_pool[place.pool] += 1
        self._places.append(place)
        self._trainers.take(place)

    def assign(self, job: JobRecord, gpus: int = 0) -> Assignment | Wait:
        """Where the job may run now, or what it waits for, as far as is known.

        Args:
            gpus: of its trainer, where it has one of its own: a pool's are nobody's to hold.
        """
        if self._jobs >= self._limits.active_jobs:
            most = self._limits.active_jobs
            text = f"{most} job{'s run' if most > 1 else ' runs'}, which is MAX_ACTIVE_JOBS"
            return Wait("MAX_ACTIVE_JOBS", text + held(self._places))
        trainer = self._trainers.assign(job)
        if wait := self._above_project(project_of(job.spec), 0 if trainer else gpus):
            return wait
        if isinstance(trainer, Wait):
            return trainer
        pool = self._pool(job)
        return pool if isinstance(pool, Wait) else Assignment(pool, trainer)

    def _above_project(self, project: str, gpus: int) -> Wait | None:
        if wait := self._spent.get(project):
            return wait
        limits = self._projects.of(project)
        jobs, most = self._jobs_of[project], limits.max_active_jobs
        if most is not None and jobs >= most:
            text = f"the project {project!r} has {jobs} running; its maxActiveJobs is {most}"
            own = [place for place in self._places if place.project == project]
            return Wait("PROJECT_ACTIVE_JOBS", text + held(own))
        used, most = self._gpus_of[project], limits.max_gpus
        if most is not None and gpus and used + gpus > most:
            text = f"the project {project!r} uses {used} GPUs and this job needs {gpus} more"
            own = [place for place in self._places if place.project == project and place.gpus]
            return Wait("PROJECT_GPUS", f"{text}; its maxGpus is {most}{held(own)}")
        return None

    def _pool(self, job: JobRecord) -> Pool | Wait:
        serving = [
            offer
            for offer in self._offers
            if offer.serves(job.spec) and not offer.is_taken_by_teacher(job.spec)
        ]
        fitting = [offer for offer in serving if offer.fits_context(job.spec)]
        if not fitting:
            return self._unserved(job, serving)
        there = [offer for offer in fitting if offer.answers]
        if not there:
            names = ", ".join(f"{offer.pool.name!r}" for offer in fitting)
            text = f"the pool {names} of {job.spec.base_model!r} does not answer"
            return Wait("POOL_UNAVAILABLE", f"{text}: {fitting[0].error}")
        free = [offer for offer in there if self._in_pool[offer.pool.name] < self._most(offer)]
        if free:
            # The emptiest; among equals the one that it ran at before, then the first.
            best = min(free, key=lambda o: (self._in_pool[o.pool.name], o.pool.name != job.pool))
            return best.pool
        return self._taken(there[0])

    def _most(self, offer: Offer) -> int:
        return self._limits.jobs_per_pool if offer.is_shared else 1

    def _taken(self, offer: Offer) -> Wait:
        name = offer.pool.name
        there = [place for place in self._places if place.pool == name]
        if offer.is_shared:
            most = self._limits.jobs_per_pool
            text = f"{most} jobs share the pool {name!r}, which is MAX_JOBS_PER_POOL"
            return Wait("POOL_FULL", text + held(there))
        text = f"the pool {name!r} holds the weights of one job at a time, now"
        return Wait("POOL_TAKEN", f"{text} {there[-1].job_id}'s{held(there)}")

    def _unserved(self, job: JobRecord, serving: Sequence[Offer]) -> Wait:
        if any(offer.is_pending for offer in self._offers):
            return NOTHING
        if any(offer.engine is None for offer in self._offers):
            what = f"no pool that answers serves {job.spec.base_model!r}"
            return Wait("POOL_UNAVAILABLE", f"{what}; {served(self._offers)}")
        if serving:
            asked = job.spec.rollout.sampling.max_tokens
            what = f"answers of {asked} tokens do not fit the context window of any pool"
            return Wait("CONTEXT_WINDOW", f"{what} that serves {job.spec.base_model!r}")
        if any(each.has_model(job.spec) and not each.serves(job.spec) for each in self._offers):
            what = f"no pool of {job.spec.base_model!r} renders as the job asks and takes what it"
            return Wait("BASE_MODEL_NOT_SERVED", f"{what} trains any more; {served(self._offers)}")
        what = f"no pool serves {job.spec.base_model!r} any more"
        return Wait("BASE_MODEL_NOT_SERVED", f"{what}; {served(self._offers)}")
