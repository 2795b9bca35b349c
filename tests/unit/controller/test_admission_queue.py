"""The order of the queue, without any service."""

from __future__ import annotations

from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from podium_controller.domain.ports import JobRecord
from podium_controller.domain.waits import NOTHING, Wait
from podium_controller.pools.fair_share import FairShare
from podium_controller.pools.pools import Offer, Pool
from podium_controller.pools.projects import ProjectLimits, Projects
from podium_controller.scheduling.admission_queue import AdmissionQueue, QueueLimits
from podium_controller.scheduling.trainer_places import Place

FREE = Projects()
LIMITS = QueueLimits(active_jobs=100, jobs_per_pool=2)


def offer(name: str, model: str | None = "m", *, shared: bool = False, error: str = "") -> Offer:
    mode = inference_pb.WEIGHT_MODE_ADAPTER if shared else inference_pb.WEIGHT_MODE_MERGED
    engine = None
    if model is not None:
        engine = inference_pb.GetEngineResponse(
            base_model=model, weight_mode=mode, max_model_len=100
        )
    return Offer(
        Pool(name, None, FairShare(name, 1, FREE)), engine, not error and model is not None, error
    )  # type: ignore[arg-type]


def job(
    job_id: str = "j", model: str = "m", *, tokens: int = 16, pool: str = "", project: str = ""
) -> JobRecord:
    spec = spec_pb2.JobSpec(base_model=model, project=project)
    spec.rollout.sampling.max_tokens = tokens
    return JobRecord(job_id, spec, pb.JOB_STATE_QUEUED, 0, "", pool)


def outcome(queue: AdmissionQueue, job: JobRecord, gpus: int = 0) -> str:
    """The pool's name, or the reason."""
    found = queue.assign(job, gpus)
    return found.reason if isinstance(found, Wait) else found.pool.name


def test_a_pool_of_merged_weights_takes_one_job_and_one_of_adapters_several() -> None:
    queue = AdmissionQueue(
        LIMITS, FREE, [offer("a"), offer("b", "n", shared=True)], [Place("first", "a")]
    )
    assert outcome(queue, job()) == "POOL_TAKEN"
    for name in ("x", "y"):
        assert outcome(queue, job(name, "n")) == "b"
        queue.take(Place(name, "b"))
    assert outcome(queue, job("z", "n")) == "POOL_FULL"


def test_who_holds_the_pool_is_told() -> None:
    queue = AdmissionQueue(LIMITS, FREE, [offer("a")], [Place("first", "a")])
    found = queue.assign(job())
    assert isinstance(found, Wait)
    assert "'a'" in found.message
    assert "first" in found.message


def test_a_job_goes_to_the_emptiest_pool_and_back_to_its_own_among_equals() -> None:
    offers = [offer("a", shared=True), offer("b", shared=True)]
    assert outcome(AdmissionQueue(LIMITS, FREE, offers, []), job()) == "a"
    assert outcome(AdmissionQueue(LIMITS, FREE, offers, []), job(pool="b")) == "b"
    assert outcome(AdmissionQueue(LIMITS, FREE, offers, [Place("x", "b")]), job(pool="b")) == "a"


def test_one_that_does_not_answer_takes_no_job() -> None:
    away = offer("a", error="cannot be reached")
    assert outcome(AdmissionQueue(LIMITS, FREE, [away], []), job()) == "POOL_UNAVAILABLE"
    assert outcome(AdmissionQueue(LIMITS, FREE, [away, offer("b")], []), job()) == "b"
    unknown = offer("a", None, error="cannot be reached")
    assert (
        outcome(AdmissionQueue(LIMITS, FREE, [unknown, offer("b", "n")], []), job())
        == "POOL_UNAVAILABLE"
    )


def test_nothing_is_said_before_every_pool_has_had_its_time_to_answer() -> None:
    queue = AdmissionQueue(LIMITS, FREE, [offer("a", "n"), offer("b", None)], [])
    assert queue.assign(job()) == NOTHING


def test_a_job_whose_pool_is_gone_or_too_small_waits_for_another() -> None:
    assert (
        outcome(AdmissionQueue(LIMITS, FREE, [offer("a", "n")], []), job())
        == "BASE_MODEL_NOT_SERVED"
    )
    assert (
        outcome(AdmissionQueue(LIMITS, FREE, [offer("a")], []), job(tokens=100)) == "CONTEXT_WINDOW"
    )


def test_whole_weights_run_at_a_pool_that_merges() -> None:
    whole = job()
    whole.spec.training.trainable = spec_pb2.TRAINABLE_KIND_FULL
    adapters = offer("a", shared=True)
    assert outcome(AdmissionQueue(LIMITS, FREE, [adapters, offer("b")], []), whole) == "b"
    found = AdmissionQueue(LIMITS, FREE, [adapters], []).assign(whole)
    assert isinstance(found, Wait)
    assert found.reason == "BASE_MODEL_NOT_SERVED"
    assert "takes what it trains" in found.message


def test_the_bound_of_the_installation_comes_first() -> None:
    queue = AdmissionQueue(
        QueueLimits(active_jobs=1, jobs_per_pool=2), FREE, [offer("a")], [Place("first", "a")]
    )
    assert outcome(queue, job()) == "MAX_ACTIVE_JOBS"


def test_who_waits_is_told_for_whom() -> None:
    many = [Place(f"job-{n}", "a") for n in range(5)]
    waits = [
        AdmissionQueue(
            QueueLimits(active_jobs=5, jobs_per_pool=9), FREE, [offer("a", shared=True)], many
        ),
        AdmissionQueue(
            QueueLimits(active_jobs=9, jobs_per_pool=5), FREE, [offer("a", shared=True)], many
        ),
        AdmissionQueue(LIMITS, FREE, [offer("a")], many[:1]),
    ]
    found = [queue.assign(job()) for queue in waits]
    assert all(isinstance(each, Wait) for each in found)
    texts = [each.message for each in found if isinstance(each, Wait)]
    assert "MAX_ACTIVE_JOBS: job-0, job-1, job-2 and 2 more; `podium job pause job-0`" in texts[0]
    assert "MAX_JOBS_PER_POOL: job-0, job-1, job-2 and 2 more; " in texts[1]
    assert "now job-0's: job-0; `podium job pause job-0`" in texts[2]


def test_a_project_has_its_jobs_and_another_one_goes_on() -> None:
    projects = Projects({"a": ProjectLimits(maxActiveJobs=1)})
    places = [Place("first", "p", "a")]
    queue = AdmissionQueue(LIMITS, projects, [offer("p", shared=True)], places)
    found = queue.assign(job(project="a"))
    assert found == Wait(
        "PROJECT_ACTIVE_JOBS",
        "the project 'a' has 1 running; its maxActiveJobs is 1: first; `podium job pause first` or"
        " `podium job cancel first` frees a place",
    )
    assert outcome(queue, job(project="b")) == "p"
    assert outcome(queue, job()) == "p"


def test_a_project_has_its_gpus_and_a_smaller_job_of_it_goes_on() -> None:
    projects = Projects({"a": ProjectLimits(maxGpus=8)})
    queue = AdmissionQueue(
        LIMITS, projects, [offer("p", shared=True)], [Place("first", "p", "a", 4)]
    )
    found = queue.assign(job(project="a"), 8)
    assert isinstance(found, Wait)
    assert found.reason == "PROJECT_GPUS"
    assert "uses 4 GPUs and this job needs 8 more; its maxGpus is 8" in found.message
    assert outcome(queue, job(project="a"), 4) == "p"
    assert outcome(queue, job(project="b"), 8) == "p"


def test_a_project_without_gpus_runs_what_needs_none() -> None:
    projects = Projects({"a": ProjectLimits(maxGpus=0)})
    queue = AdmissionQueue(LIMITS, projects, [offer("p", shared=True)], [])
    assert outcome(queue, job(project="a"), 1) == "PROJECT_GPUS"
    assert outcome(queue, job(project="a"), 0) == "p"


def test_a_project_that_may_run_nothing_waits_and_does_not_fail() -> None:
    projects = Projects({"a": ProjectLimits(maxActiveJobs=0)})
    queue = AdmissionQueue(LIMITS, projects, [offer("p")], [])
    assert outcome(queue, job(project="a")) == "PROJECT_ACTIVE_JOBS"
