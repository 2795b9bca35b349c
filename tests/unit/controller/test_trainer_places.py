"""Who may train where, without any service."""

from __future__ import annotations

from typing import Any

import pytest
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from podium_controller.domain.ports import JobRecord, TrainerState
from podium_controller.domain.waits import NOTHING, Wait
from podium_controller.pools.fair_share import FairShare
from podium_controller.pools.pools import Offer, Pool
from podium_controller.pools.projects import ProjectLimits, Projects
from podium_controller.pools.trainer_pools import TrainerOffer, TrainerPool
from podium_controller.scheduling.admission_queue import AdmissionQueue, Assignment, QueueLimits
from podium_controller.scheduling.trainer_places import Place, TrainerPlaces, holds_of

BF16, FP32 = spec_pb2.COMPUTE_DTYPE_BFLOAT16, spec_pb2.COMPUTE_DTYPE_FLOAT32


def offer(
    name: str, base_model: str = "m", *, takes: int = 2, most: int = 0, error: str = ""
) -> TrainerOffer:
    state = TrainerState("", takes, frozenset()) if takes else None
    pool = TrainerPool(name, None, base_model, most)  # type: ignore[arg-type]
    return TrainerOffer(pool, state, not error and state is not None, error)


def job(job_id: str = "j", model: str = "m", *, was: str = "", **trainer: Any) -> JobRecord:
    spec = spec_pb2.JobSpec(base_model=model, trainer=spec_pb2.TrainerSpec(**trainer))
    spec.training.dtype = BF16
    return JobRecord(job_id, spec, pb.JOB_STATE_QUEUED, 0, "", trainer_pool=was)


def there(name: str, pool: str, of: JobRecord | None = None) -> Place:
    return Place(name, "p", trainer_pool=pool, holds=holds_of((of or job()).spec))


def places(*offers: TrainerOffer, at: Any = (), **options: Any) -> TrainerPlaces:
    made = TrainerPlaces(offers, **options)
    for place in at:
        made.take(place)
    return made


def outcome(trainers: TrainerPlaces, waiting: JobRecord) -> str:
    """The trainer pool's name, `own`, or the reason."""
    found = trainers.assign(waiting)
    if isinstance(found, Wait):
        return found.reason
    return "own" if found is None else found.name


def test_without_trainer_pools_every_job_has_a_trainer_of_its_own() -> None:
    assert outcome(places(own=1, at=[there("a", "")]), job()) == "own"


def test_a_job_goes_to_a_pool_of_its_base_model_and_back_to_its_own_among_equals() -> None:
    three = (offer("a"), offer("b"), offer("other", "n"))
    assert outcome(places(*three), job()) == "a"
    assert outcome(places(*three), job(was="b")) == "b"
    assert outcome(places(*three, at=[there("x", "b")]), job(was="b")) == "a"
    assert outcome(places(*three), job(model="n")) == "other"
    assert outcome(places(*three), job(model="elsewhere")) == "own"


def full() -> JobRecord:
    record = job()
    record.spec.training.trainable = spec_pb2.TRAINABLE_KIND_FULL
    return record


def experts() -> JobRecord:
    record = job()
    record.spec.training.lora.target_modules[:] = ["q_proj", "experts"]
    return record


@pytest.mark.parametrize(
    "alone",
    [
        job(dedicated=True),
        job(nodes=2),
        job(gpus_per_node=1),
        job(queue="q"),
        job(priority_class="high"),
        full(),
        experts(),
    ],
)
def test_what_cannot_share_or_does_not_want_to_has_its_own(alone: JobRecord) -> None:
    assert outcome(places(offer("a")), alone) == "own"


def test_one_that_names_a_pool_goes_there_and_nowhere_else() -> None:
    two = (offer("a"), offer("b", takes=1))
    assert outcome(places(*two), job(pool="b")) == "b"
    assert outcome(places(*two, at=[there("x", "b")]), job(pool="b")) == "TRAINER_POOL_FULL"
    assert outcome(places(*two), job(pool="gone")) == "NO_TRAINER"
    assert outcome(places(), job(pool="gone")) == "NO_TRAINER"


def test_a_full_pool_says_who_holds_it() -> None:
    trainers = places(offer("a"), at=[there("x", "a"), there("y", "a")])
    found = trainers.assign(job())
    assert isinstance(found, Wait)
    assert found == Wait(
        "TRAINER_POOL_FULL",
        "2 jobs train at the trainer pool 'a', which takes 2: x, y; `podium job pause x` or"
        " `podium job cancel x` frees a place",
    )


def test_the_settings_bound_a_pool_below_what_its_trainer_takes() -> None:
    assert outcome(places(offer("a", most=1), at=[there("x", "a")]), job()) == "TRAINER_POOL_FULL"
    busy = [there(name, "a") for name in "xy"]
    assert outcome(places(offer("a", most=9), at=busy), job()) == "TRAINER_POOL_FULL"


def test_others_jobs_take_room_and_one_s_own_does_not() -> None:
    strangers = {"a": frozenset({"z"})}
    trainers = places(offer("a"), at=[there("x", "a")], strangers=strangers)
    found = trainers.assign(job())
    assert isinstance(found, Wait)
    assert "takes 2 (1 of another installation: z): x; `podium job pause x`" in found.message
    # Still open there, as nobody could close it: it is where it was.
    assert outcome(trainers, job("z")) == "a"


def test_jobs_of_a_pool_have_base_model_and_compute_type_in_common() -> None:
    trainers = places(offer("a", "", takes=4), at=[there("x", "a")])
    assert outcome(trainers, job()) == "a"
    found = trainers.assign(job(model="n"))
    assert isinstance(found, Wait)
    assert found.reason == "TRAINER_POOL_FULL"
    assert "holds 'm' in COMPUTE_DTYPE_BFLOAT16 for other jobs: x;" in found.message
    other = job()
    other.spec.training.dtype = FP32
    assert outcome(trainers, other) == "TRAINER_POOL_FULL"
    assert outcome(places(offer("a", takes=4), offer("b"), at=[there("x", "a")]), other) == "b"


def test_a_pool_that_is_away_takes_no_job_and_none_goes_elsewhere_for_it() -> None:
    away = offer("a", error="cannot be reached")
    found = places(away).assign(job())
    assert found == Wait(
        "TRAINER_POOL_UNAVAILABLE",
        "the trainer pool 'a' does not answer: cannot be reached",
    )
    assert outcome(places(away, offer("b")), job()) == "b"
    assert outcome(places(away), job(model="n")) == "own"
    assert places(offer("a", takes=0)).assign(job()) == NOTHING


def test_the_one_trainer_beside_pools_takes_a_job_at_a_time() -> None:
    alone = job("z", dedicated=True)
    assert outcome(places(offer("a"), own=1, at=[there("x", "a")]), alone) == "own"
    assert outcome(places(offer("a"), own=1, at=[there("x", "")]), alone) == "TRAINER_TAKEN"
    assert outcome(places(offer("a"), own=None, at=[there("x", "")]), alone) == "own"
    assert outcome(places(offer("a"), own=0), alone) == "NO_TRAINER"


def test_the_gpus_of_a_shared_trainer_are_no_project_s() -> None:
    projects = Projects({"lab": ProjectLimits(maxGpus=4)})
    engine = inference_pb.GetEngineResponse(
        base_model="m", weight_mode=inference_pb.WEIGHT_MODE_ADAPTER
    )
    pool = Offer(Pool("p", None, FairShare("p", 1, projects)), engine, True, "")  # type: ignore[arg-type]
    queue = AdmissionQueue(
        QueueLimits(9, 9), projects, [pool], [], trainers=places(offer("a", takes=9))
    )
    pooled, alone = job("x"), job("y", dedicated=True)
    for each in (pooled, alone):
        each.spec.project = "lab"
    found = queue.assign(pooled, 8)
    assert isinstance(found, Assignment)
    assert found.trainer_pool is not None
    told = queue.assign(alone, 8)
    assert isinstance(told, Wait)
    assert told.reason == "PROJECT_GPUS"
