"""For which trainer pools jobs wait that are not there, without any service."""

from __future__ import annotations

from collections.abc import Sequence
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
from podium_controller.scheduling.admission_queue import AdmissionQueue, QueueLimits
from podium_controller.scheduling.awaited import awaited
from podium_controller.scheduling.trainer_places import Place, TrainerPlaces

PROJECTS = Projects({"one": ProjectLimits(maxActiveJobs=1), "lab": ProjectLimits()})
BF16, FP32 = spec_pb2.COMPUTE_DTYPE_BFLOAT16, spec_pb2.COMPUTE_DTYPE_FLOAT32


def offer(
    name: str, model: str = "m", *, most: int = 2, error: str = "no pod", scales: bool = True
) -> TrainerOffer:
    """One that does not answer; it does with an empty error, and is still to be asked with `?`."""
    pool = TrainerPool(name, None, model, most, scales_to_zero=scales)  # type: ignore[arg-type]
    state = None if error else TrainerState("", most, frozenset())
    return TrainerOffer(pool, state, not error, error.removeprefix("?"))


def job(job_id: str, model: str = "m", *, project: str = "lab", **trainer: Any) -> JobRecord:
    spec = spec_pb2.JobSpec(base_model=model, project=project)
    spec.trainer.MergeFrom(spec_pb2.TrainerSpec(**trainer))
    spec.training.dtype = BF16
    return JobRecord(job_id, spec, pb.JOB_STATE_QUEUED, 0, "")


def in_float32(job_id: str) -> JobRecord:
    record = job(job_id)
    record.spec.training.dtype = FP32
    return record


def place(name: str, pool: str) -> Place:
    return Place(name, "p", "lab", trainer_pool=pool, holds=("m", BF16))


def look(
    offers: Sequence[TrainerOffer],
    jobs: Sequence[JobRecord],
    at: Sequence[Place] = (),
    *,
    limits: QueueLimits | None = None,
    strangers: dict[str, frozenset[str]] | None = None,
) -> tuple[dict[str, Wait], dict[str, int] | None]:
    """What each job is told, and how many count for which pool."""
    serving = []
    for model in ("m", "n"):
        engine = inference_pb.GetEngineResponse(
            base_model=model, weight_mode=inference_pb.WEIGHT_MODE_ADAPTER
        )
        pool = Pool("p" if model == "m" else model, None, FairShare(model, 9, PROJECTS))  # type: ignore[arg-type]
        serving.append(Offer(pool, engine, True, ""))
    trainers = TrainerPlaces(offers, own=0, strangers=strangers)
    queue = AdmissionQueue(limits or QueueLimits(9, 9), PROJECTS, serving, at, trainers=trainers)
    still = []
    for each in jobs:
        found = queue.assign(each)
        assert isinstance(found, Wait)
        still.append((each, found))
    told, counted = awaited(queue, still, lambda _: 0)
    waits = {each.id: wait for each, wait in told}
    return waits, None if counted is None else dict(counted)


def reasons(waits: dict[str, Wait]) -> list[str]:
    return [wait.reason for wait in waits.values()]


def test_each_job_counts_for_one_pool_that_could_take_it() -> None:
    offers = [offer("a"), offer("b"), offer("other", "n")]
    jobs = [job("1"), job("2", pool="b"), job("3", "n"), job("4", dedicated=True)]
    waits, counted = look(offers, jobs)
    assert counted == {"a": 1, "b": 1, "other": 1}
    # The last one fits nowhere.
    assert reasons(waits) == [*["TRAINER_POOL_STARTING"] * 3, "NO_TRAINER"]
    assert waits["2"].message == (
        "the trainer pool 'b' is there only while jobs want it, and starts for this one; it does"
        " not answer yet: no pod"
    )


def test_a_pool_is_filled_before_another_one_is_started() -> None:
    offers = [offer("a"), offer("b"), offer("c")]
    assert look(offers, [job(str(n)) for n in range(2)])[1] == {"a": 2}
    assert look(offers, [job(str(n)) for n in range(3)])[1] == {"a": 2, "b": 1}
    # What is lost holds its place, and its trainer is on its way.
    assert look(offers, [job("1"), job("2")], [place("x", "b")])[1] == {"b": 1, "a": 1}
    # In another compute type it shares with nobody there.
    assert look(offers, [job("1"), in_float32("2"), job("3")])[1] == {"a": 2, "b": 1}
    assert look([offer("a", most=0)], [job(str(n)) for n in range(9)])[1] == {"a": 9}


def test_one_that_finds_the_others_full_starts_the_one_that_rests() -> None:
    offers = [offer("a", error="", most=1), offer("b")]
    waits, counted = look(offers, [job("1"), job("2", pool="a")], [place("x", "a")])
    assert counted == {"b": 1}
    assert reasons(waits) == ["TRAINER_POOL_STARTING", "TRAINER_POOL_FULL"]
    assert "'b'" in waits["1"].message


def test_those_of_others_are_gone_with_the_pod_that_had_them() -> None:
    there = {"a": frozenset({"y", "z"})}
    assert look([offer("a")], [job("1")], strangers=there)[1] == {"a": 1}


@pytest.mark.parametrize(
    ("limits", "project", "told"),
    [
        (QueueLimits(9, 9), "one", "PROJECT_ACTIVE_JOBS"),
        (QueueLimits(2, 9), "lab", "MAX_ACTIVE_JOBS"),
        (QueueLimits(9, 2), "lab", "POOL_FULL"),
    ],
)
def test_no_trainer_is_started_for_what_something_else_keeps(
    limits: QueueLimits, project: str, told: str
) -> None:
    # One runs in a pool that answers; of the two that wait, one more may.
    running = Place("x", "p", "lab", trainer_pool="up", holds=("m", BF16))
    offers = [offer("up", "n", error=""), offer("a", most=1), offer("b", most=1)]
    waits, counted = look(
        offers, [job("1", project=project), job("2", project=project)], [running], limits=limits
    )
    assert counted == {"a": 1}
    assert reasons(waits) == ["TRAINER_POOL_STARTING", told]


def test_one_that_does_not_scale_is_waited_for_as_ever() -> None:
    waits, counted = look([offer("a", scales=False)], [job("1")])
    assert counted == {"a": 1}
    assert waits["1"] == Wait(
        "TRAINER_POOL_UNAVAILABLE", "the trainer pool 'a' does not answer: no pod"
    )


def test_nothing_is_counted_before_it_is_known() -> None:
    unknown = offer("a", error="?")
    assert look([unknown], [job("1")]) == ({"1": NOTHING}, None)
    # It may have room, and then the other one need not start.
    assert look([unknown, offer("b")], [job("1")]) == ({"1": NOTHING}, None)
    assert look([offer("b")], [])[1] == {}
    assert look([offer("b", error="", most=0), offer("c", "n")], [])[1] == {}
