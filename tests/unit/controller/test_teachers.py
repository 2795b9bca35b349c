"""What CreateJob says against a teacher: pools, versions, vocabularies, and what contradicts it."""

from __future__ import annotations

from typing import Any

import pytest
from podium.core.errors import UnavailableError, Violation
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.jobs.v1 import job_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.types.v1 import spec_pb2
from podium_controller.api.admission import Admission
from podium_controller.api.specification import complete, violations
from podium_controller.domain.ports import JobRecord
from podium_controller.pools.fair_share import FairShare
from podium_controller.pools.pools import Pool, Pools
from podium_controller.scheduling.admission_queue import AdmissionQueue, Assignment, QueueLimits
from support.fakes.bench import Bench
from support.fakes.peers import FakeInference

ADAPTERS = inference_pb.WEIGHT_MODE_ADAPTER
RULER = {"scorers": [{"kind": "SCORER_KIND_RULER"}]}


class School(Bench):
    """Pools `default`, of the student's model, and `big`, of another; versions of two models."""

    def __init__(self, teacher: str = "old@3", pool: str = "big", **loss: Any) -> None:
        training = spec_pb2.TrainingSpec(steps=3, loss=loss)
        super().__init__(
            training=training,
            distillation=spec_pb2.DistillationSpec(teacher=teacher, pool=pool),
            environment=spec_pb2.EnvironmentSpec(name="double"),
        )
        self.spec.CopyFrom(complete(self.spec))
        full = registry_pb.VERSION_KIND_FULL
        for version in range(5):
            self.registry.create(
                registry_pb.Manifest(model="old", version=version, base_model="big-model"), ()
            )
            self.registry.create(
                registry_pb.Manifest(model="peer", version=version, base_model="tiny"), ()
            )
        self.registry.create(
            registry_pb.Manifest(model="whole", version=1, base_model="tiny", kind=full), ()
        )
        self.registry.aliases["old", "best"] = 2
        self.registry.aliases["old", "latest"] = 4
        self.big = FakeInference(self.registry, self, "big-model")
        self.two = Pools([self.pool, Pool("big", self.big, FairShare("big", 256, self.projects))])
        self.admission = Admission(self.peers, self.two, self.projects)

    async def told(self) -> list[Violation]:
        """What is said against the teacher."""
        return await self.admission.check_teacher(self.spec)

    async def refused(self, field: str, *words: str) -> None:
        (found,) = await self.told()
        assert found.field == f"job.spec.distillation.{field}"
        for word in words:
            assert word in found.description


@pytest.mark.parametrize(
    ("teacher", "resolved"),
    [("old@3", "old@3"), ("old", "old@4"), ("old@best", "old@2"), ("base", "base")],
)
async def test_what_it_names_at_the_jobs_creation_stays_the_teacher(
    teacher: str, resolved: str
) -> None:
    school = School(teacher)
    assert await school.told() == []
    assert school.spec.distillation.teacher == resolved


@pytest.mark.parametrize("teacher", ["old@9", "nobody@1", "nobody", "old@worst"])
async def test_a_teacher_that_is_nowhere_is_refused(teacher: str) -> None:
    await School(teacher).refused("teacher", repr(teacher), "the registry does not have")


@pytest.mark.parametrize("teacher", ["Old@1", "old@", "a/b", "old@-1", "old @3"])
async def test_a_name_that_is_none_is_refused_with_what_is_allowed(teacher: str) -> None:
    await School(teacher).refused("teacher", repr(teacher), "`job@version`", "`job@alias`")


async def test_a_pool_that_is_not_there_is_refused_with_those_that_are() -> None:
    await School(pool="huge").refused("pool", "'huge'", "big, default")


async def test_a_pool_with_merged_weights_cannot_hold_the_teacher_beside_the_student() -> None:
    await School("peer@1", pool="").refused("pool", "'default'", "merged weights", "WEIGHT_MODE")
    await School("peer@1", pool="default").refused("pool", "'default'", "only pool")


async def test_a_pool_of_adapters_holds_the_teacher_beside_the_student() -> None:
    for pool in ("", "default"):
        school = School("peer@1", pool=pool)
        school.inference.weight_mode = ADAPTERS
        assert await school.told() == []


async def test_whole_weights_are_no_adapter() -> None:
    school = School("whole@1", pool="")
    school.inference.weight_mode = ADAPTERS
    await school.refused("teacher", "whole weights", "adapters")


async def test_a_version_of_another_base_model_than_its_pool_s_is_refused() -> None:
    await School("peer@1").refused("teacher", "peer@1", "'tiny'", "'big-model'")


@pytest.mark.parametrize("vocabulary", ["sha256:two", ""])
async def test_a_teacher_of_another_tokenizer_is_refused_and_both_are_told(vocabulary: str) -> None:
    school = School()
    school.big.vocabulary = vocabulary
    await school.refused("pool", "'big-model'", "'tiny'", "same tokenizer", "one")


async def test_the_base_model_that_the_student_begins_with_teaches_nothing() -> None:
    school = School("base", pool="")
    school.inference.weight_mode = ADAPTERS
    await school.refused("teacher", "nothing to learn")
    rewarded = School("base", pool="", reward_coefficient=1)
    rewarded.inference.weight_mode = ADAPTERS
    assert await rewarded.told() == []


async def test_a_teachers_pool_that_never_answered_is_waited_for_by_the_submitter() -> None:
    school = School()

    def away() -> None:
        raise UnavailableError("it starts")

    school.before("engine", lambda: None, away)
    with pytest.raises(UnavailableError) as raised:
        await school.told()
    assert raised.value.reason == "POOL_UNAVAILABLE"
    assert "'big'" in raised.value.message


async def test_a_teacher_of_a_shorter_context_is_warned_of() -> None:
    school = School()
    await school.told()
    assert not [each for each in school.admission.warnings(school.spec) if "distillation" in each]
    shorter = School()
    shorter.big.window = 512
    await shorter.told()
    (said,) = [each for each in shorter.admission.warnings(shorter.spec) if "distillation" in each]
    assert "512" in said
    assert "2048" in said


async def test_a_job_without_a_teacher_asks_nobody() -> None:
    school = School()
    school.spec.ClearField("distillation")
    assert await school.told() == []
    assert school.calls == []


async def test_a_student_gets_no_place_in_its_teachers_merged_pool() -> None:
    school = School("base", pool="big")
    school.big.base_model = "tiny"
    await school.two.ask()
    job = JobRecord("job", school.spec, 0, 0, "", pool="big")
    queue = AdmissionQueue(QueueLimits(4, 4), school.projects, school.two.offers(), [])
    found = queue.assign(job)
    assert isinstance(found, Assignment)
    assert found.pool.name == "default"


def said_of(job_id: str = "", reward: dict[str, Any] | None = None, **loss: Any) -> list[str]:
    """Fields that contradict something in a job whose teacher is `old`."""
    spec = spec_pb2.JobSpec(
        base_model="m",
        environment=spec_pb2.EnvironmentSpec(name="double"),
        training=spec_pb2.TrainingSpec(steps=3, loss=loss),
        distillation=spec_pb2.DistillationSpec(teacher="old@3"),
        reward=reward,
    )
    found = violations(pb.Job(id=job_id, spec=complete(spec)))
    return [each.field.removeprefix("job.spec.") for each in found]


def test_a_teacher_brings_its_coefficients() -> None:
    spec = spec_pb2.JobSpec(distillation=spec_pb2.DistillationSpec(teacher="old@3"))
    loss = complete(spec).training.loss
    assert (loss.teacher_coefficient, loss.reward_coefficient) == (1, 0)
    assert said_of() == []
    plain = complete(spec_pb2.JobSpec()).training.loss
    assert (plain.teacher_coefficient, plain.reward_coefficient) == (0, 1)


def test_a_pool_without_a_teacher_is_not_taken_for_none() -> None:
    pool = spec_pb2.JobSpec(distillation=spec_pb2.DistillationSpec(pool="big"))
    pool.environment.name = "double"
    found = violations(pb.Job(spec=complete(pool)))
    assert [each.field for each in found] == ["job.spec.distillation.teacher"]
    nothing = complete(spec_pb2.JobSpec(distillation=spec_pb2.DistillationSpec()))
    assert not nothing.HasField("distillation")
    assert nothing.training.loss.reward_coefficient == 1


def test_what_contradicts_a_teacher_is_told_by_its_field() -> None:
    assert said_of("old") == ["distillation.teacher"]
    assert said_of(teacher_coefficient=0) == ["training.loss.teacher_coefficient"]
    assert said_of(reward=RULER) == ["training.loss.reward_coefficient"]
    assert said_of(reward=RULER, reward_coefficient=0.5) == []
    alone = spec_pb2.JobSpec(environment=spec_pb2.EnvironmentSpec(name="double"))
    alone.training.loss.teacher_coefficient = 1
    found = violations(pb.Job(spec=complete(alone)))
    assert [each.field for each in found] == ["job.spec.training.loss.teacher_coefficient"]
