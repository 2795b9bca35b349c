"""Where the jobs that wait may train: beside others at a trainer pool, or in one of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from podium.types.v1 import spec_pb2

from podium_controller.domain.identifiers import DEFAULT_PROJECT
from podium_controller.domain.ports import JobRecord, TrainerState
from podium_controller.domain.waits import NOTHING, TRAINER_POOL_STARTING, Wait
from podium_controller.pools.trainer_pools import TrainerOffer, TrainerPool, wants_own

_SHOWN = 3
# Of a trainer that has not said how many jobs it takes, and of which the settings do not.
_MANY = 1000


@dataclass(frozen=True)
class Place:
    """What a running job holds."""

    job_id: str
    pool: str
    project: str = DEFAULT_PROJECT
    gpus: int = 0
    """Of its own trainer."""
    trainer_pool: str = ""
    """Empty for a trainer of its own."""
    holds: tuple[str, int] = ("", 0)
    """Base model and compute type, which the jobs of a trainer pool have in common."""


class TrainerPlaces:
    """One look at the trainer pools: each job that may run takes its place before the next."""

    def __init__(
        self,
        offers: Sequence[TrainerOffer] = (),
        own: int | None = None,
        strangers: Mapping[str, frozenset[str]] | None = None,
        *,
        packs: bool = False,
    ) -> None:
        """`own` is how many jobs may have a trainer of their own, None for as many as want one.

        `strangers` are jobs that a pool has open and that are none of this installation's. With
        `packs` jobs go to the fullest pool, and not to the emptiest.
        """
        self._offers = offers
        self._own = own
        self._strangers = strangers or {}
        self._packs = packs
        self._places: list[Place] = []

    def take(self, place: Place) -> None:
        """A job runs there now."""
        self._places.append(place)

    def assign(self, job: JobRecord) -> TrainerPool | Wait | None:
        """The pool where a job may train now, or what it waits for; None for one of its own."""
        # Without pools it is as it always was: whoever runs has a trainer of its own.
        if not self._offers and not job.spec.trainer.pool:
            return None
        fitting = self._fitting(job.spec)
        if not fitting:
            return self._alone(job.spec)
        there = [offer for offer in fitting if offer.answers]
        holds = holds_of(job.spec)
        like = [o for o in there if all(each.holds == holds for each in self._at(o.pool.name))]
        free = [o for o in like if self._taken(o, job) < o.max_jobs]
        if free:
            # As with inference pools: the emptiest; then where it was before, then the first.
            name, sign = job.trainer_pool, -1 if self._packs else 1
            return min(free, key=lambda o: (sign * self._taken(o, job), o.pool.name != name)).pool
        if any(offer.is_pending for offer in fitting):
            return NOTHING
        if not there:
            return _away(fitting)
        return self._full(like[0], job) if like else self._other(there[0])

    @property
    def away(self) -> dict[str, str]:
        """The pools that do not answer, and why not."""
        return {offer.pool.name: offer.error for offer in self._offers if offer.is_away}

    def if_all_answered(self) -> TrainerPlaces:
        """The same, and no place taken, if those that do not answer were there.

        They are empty then, and are filled one by one: each costs a start.
        """
        offers = [_as_if_there(offer) if offer.is_away else offer for offer in self._offers]
        away = self.away
        strangers = {name: jobs for name, jobs in self._strangers.items() if name not in away}
        return TrainerPlaces(offers, self._own, strangers, packs=True)

    def _fitting(self, spec: spec_pb2.JobSpec) -> list[TrainerOffer]:
        if name := spec.trainer.pool:
            return [offer for offer in self._offers if offer.pool.name == name]
        if wants_own(spec):
            return []
        return [offer for offer in self._offers if offer.may_hold(spec.base_model)]

    def _alone(self, spec: spec_pb2.JobSpec) -> Wait | None:
        names = ", ".join(repr(offer.pool.name) for offer in self._offers) or "none"
        if name := spec.trainer.pool:
            text = f"the trainer pool {name!r} is gone from the settings; there are {names}"
            return Wait("NO_TRAINER", text)
        if self._own == 0:
            text = f"it needs a trainer of its own; there are trainer pools alone: {names}"
            return Wait("NO_TRAINER", text)
        own = self._at("")
        if self._own is not None and len(own) >= self._own:
            text = "the trainer outside the trainer pools takes one job at a time"
            return Wait("TRAINER_TAKEN", text + held(own))
        return None

    def _at(self, pool: str) -> list[Place]:
        return [place for place in self._places if place.trainer_pool == pool]

    def _taken(self, offer: TrainerOffer, job: JobRecord) -> int:
        name = offer.pool.name
        ours = {place.job_id for place in self._at(name)}
        # One that could not be closed there finds its own place again.
        return len(ours | self._strangers.get(name, frozenset()) - {job.id})

    def _full(self, offer: TrainerOffer, job: JobRecord) -> Wait:
        name, own = offer.pool.name, self._at(offer.pool.name)
        text = f"{self._taken(offer, job)} jobs train at the trainer pool {name!r}, which takes"
        text += f" {offer.max_jobs}"
        if strange := sorted(self._strangers.get(name, frozenset())):
            shown = ", ".join(strange[:_SHOWN])
            text += f" ({len(strange)} of another installation: {shown})"
        return Wait("TRAINER_POOL_FULL", text + held(own))

    def _other(self, offer: TrainerOffer) -> Wait:
        own = self._at(offer.pool.name)
        model, dtype = own[0].holds
        kind = spec_pb2.ComputeDtype.Name(dtype)  # type: ignore[arg-type]
        text = f"the trainer pool {offer.pool.name!r} holds {model!r} in {kind} for other jobs"
        return Wait("TRAINER_POOL_FULL", text + held(own))


def starting(pools: Sequence[str], error: str) -> Wait:
    """The wait for a trainer pool that is there only while jobs want it; for one of several."""
    names = ", ".join(map(repr, pools))
    text = f"the trainer pool {names} is there only while jobs want it, and starts for this one"
    return Wait(TRAINER_POOL_STARTING, f"{text}; it does not answer yet: {error}")


def _away(fitting: Sequence[TrainerOffer]) -> Wait:
    """None of them answers."""
    if scaled := [offer for offer in fitting if offer.pool.scales_to_zero]:
        return starting([offer.pool.name for offer in scaled], scaled[0].error)
    names = ", ".join(repr(offer.pool.name) for offer in fitting)
    text = f"the trainer pool {names} does not answer: {fitting[0].error}"
    return Wait("TRAINER_POOL_UNAVAILABLE", text)


def _as_if_there(offer: TrainerOffer) -> TrainerOffer:
    state = TrainerState("", offer.max_jobs or _MANY, frozenset())
    return replace(offer, state=state, answers=True, error="")


def holds_of(spec: spec_pb2.JobSpec) -> tuple[str, int]:
    """See `Place.holds`."""
    return spec.base_model, spec.training.dtype


def held(places: Sequence[Place]) -> str:
    """By whom, and how one of them gives it up."""
    if not places:
        return ""
    names = [place.job_id for place in places]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    freed = f"`podium job pause {names[0]}` or `podium job cancel {names[0]}` frees a place"
    return f": {', '.join(names[:_SHOWN])}{more}; {freed}"
