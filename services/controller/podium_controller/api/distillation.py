"""Whether a job can have the teacher that it names."""

from __future__ import annotations

from collections.abc import Sequence

from podium.core.errors import (
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    Violation,
)
from podium.core.policy_names import resolve_policy
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.jobs.v1 import job_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.types.v1 import policy_pb2, spec_pb2

from podium_controller.domain.registry import Registry
from podium_controller.pools.pools import Offer, served

_PATH = "job.spec.distillation"
_TEACHER = f"{_PATH}.teacher"
_POOL = f"{_PATH}.pool"
_COEFFICIENT = "job.spec.training.loss.teacher_coefficient"


def distillation_violations(job: pb.Job) -> list[Violation]:
    """What contradicts itself in a completed job; a teacher that is there is not asked for."""
    loss = job.spec.training.loss
    taught = job.spec.HasField("distillation")
    found = []
    if loss.teacher_coefficient and not taught:
        text = f"got {loss.teacher_coefficient:g} without a teacher; name one in {_PATH}"
        found.append(Violation(_COEFFICIENT, text))
    if not taught:
        return found
    if not job.spec.distillation.teacher:
        text = f"got none with the pool {job.spec.distillation.pool!r}; needed is who teaches there"
        found.append(Violation(_TEACHER, text))
    if not loss.teacher_coefficient:
        text = f"got 0, with which {_PATH} has no part in the loss; allowed are numbers above 0"
        found.append(Violation(_COEFFICIENT, text))
    if not loss.reward_coefficient and job.spec.reward.scorers:
        text = (
            "got 0 with job.spec.reward, whose scorers would be asked for nothing; allowed are"
            " numbers above 0, or no reward (the environment's own is shown in any case)"
        )
        found.append(Violation("job.spec.training.loss.reward_coefficient", text))
    if job.id and job.spec.distillation.teacher.partition("@")[0] == job.id:
        text = (
            f"got {job.spec.distillation.teacher!r}, the job itself; no policy is its own teacher"
        )
        found.append(Violation(_TEACHER, text))
    return found


async def check_teacher(
    spec: spec_pb2.JobSpec, offers: Sequence[Offer], registry: Registry
) -> list[Violation]:
    """What pools and registry say against the teacher; an open version becomes a number.

    Raises:
        UnavailableError: POOL_UNAVAILABLE, the teacher's pool has never answered.
    """
    if not spec.distillation.teacher:
        return []
    students = [each for each in offers if each.serves(spec)]
    found = _teacher_offer(spec, students, offers)
    if isinstance(found, list):
        return found
    violations = _tokenizer(
        found, [each for each in students if not each.is_taken_by_teacher(spec)]
    )
    return violations + await _policy(spec, found, registry)


def teacher_warnings(spec: spec_pb2.JobSpec, offers: Sequence[Offer]) -> list[str]:
    """What of the student's attempts the teacher may not be able to read."""
    if not spec.HasField("distillation"):
        return []
    students = [each for each in offers if each.serves(spec)]
    found = _teacher_offer(spec, students, offers)
    if isinstance(found, list) or found.engine is None:
        return []
    own = max(
        (each.engine.max_model_len for each in students if each.engine is not None), default=0
    )
    window = found.engine.max_model_len
    if not window or window >= own:
        return []
    return [
        f"{_POOL}: the context window of {found.pool.name!r} is {window} tokens, the student's"
        f" {own}; an attempt of more than {window} leaves the loss"
    ]


def _teacher_offer(
    spec: spec_pb2.JobSpec, students: Sequence[Offer], offers: Sequence[Offer]
) -> Offer | list[Violation]:
    """The pool of the teacher, or why there is none."""
    named = spec.distillation.pool
    if not named:
        shared = [each for each in students if each.is_shared]
        if shared and len(shared) == len(students):
            return shared[0]
        merged = ", ".join(repr(each.pool.name) for each in students if not each.is_shared)
        text = (
            f"got none, and the pool {merged} that serves the job has merged weights, which are of"
            " one policy; allowed is the name of another pool, or a job's pool of adapters"
            " (PODIUM_INFERENCE_WEIGHT_MODE=adapter)"
        )
        return [Violation(_POOL, text)]
    offer = next((each for each in offers if each.pool.name == named), None)
    if offer is None:
        names = ", ".join(sorted(each.pool.name for each in offers))
        return [Violation(_POOL, f"got {named!r}, which no pool is called; there are {names}")]
    if offer.engine is None:
        raise UnavailableError(
            f"{_POOL}: {served([offer])}",
            reason="POOL_UNAVAILABLE",
            metadata={"peer": "inference"},
        )
    if students and all(each.is_taken_by_teacher(spec) for each in students):
        text = (
            f"got {named!r}, the only pool that serves {spec.base_model!r}, with merged weights,"
            " which are of one policy; allowed is another pool, or one of adapters"
        )
        return [Violation(_POOL, text)]
    return offer


def _tokenizer(teacher: Offer, students: Sequence[Offer]) -> list[Violation]:
    """The student's token ids must mean the same to the teacher."""
    engine = teacher.engine
    assert engine is not None
    for student in students:
        own = student.engine
        if own is None or engine.base_model == own.base_model:
            continue
        if not engine.vocabulary_digest or engine.vocabulary_digest != own.vocabulary_digest:
            text = (
                f"got {teacher.pool.name!r}, whose {_vocabulary(engine)} is not the student's,"
                f" {_vocabulary(own)}; allowed are models of the same tokenizer, since the teacher"
                " reads the student's token ids"
            )
            return [Violation(_POOL, text)]
    return []


def _vocabulary(engine: inference_pb.GetEngineResponse) -> str:
    digest = engine.vocabulary_digest.removeprefix("sha256:")[:12] or "unknown"
    return f"vocabulary of {engine.base_model!r} ({engine.vocab_size} ids, {digest})"


async def _policy(spec: spec_pb2.JobSpec, teacher: Offer, registry: Registry) -> list[Violation]:
    engine = teacher.engine
    assert engine is not None

    async def version_of(model: str, alias: str) -> registry_pb.Version:
        found = await registry.alias(model, alias)
        if found is None:
            raise NotFoundError(f"{model}@{alias}")
        return found

    wanted = spec.distillation.teacher
    missing = [Violation(_TEACHER, f"got {wanted!r}, which the registry does not have")]
    try:
        policy = await resolve_policy(wanted, version_of)
    except InvalidArgumentError as error:
        return [Violation(_TEACHER, error.violations[0].description)]
    except NotFoundError:
        return missing
    if not policy.job:
        return _base(spec, engine.base_model)
    if policy.HasField("version"):
        found = await registry.version(policy.job, policy.version)
    else:
        found = await registry.alias(policy.job, "latest")
    if found is None:
        return missing
    policy.version = found.manifest.version
    spec.distillation.teacher = f"{policy.job}@{policy.version}"
    return _fits(policy, found.manifest, teacher)


def _base(spec: spec_pb2.JobSpec, base_model: str) -> list[Violation]:
    spec.distillation.teacher = "base"
    same = base_model == spec.base_model and not spec.HasField("fork")
    if not same or spec.training.loss.reward_coefficient:
        return []
    text = (
        f"got `base`, which is {base_model!r}, as the student is before its first step, and no"
        " rewards count; there is nothing to learn. Allowed are a version of a job, the base of a"
        " pool of another model, or training.loss.reward_coefficient above 0"
    )
    return [Violation(_TEACHER, text)]


def _fits(
    policy: policy_pb2.PolicyRef, manifest: registry_pb.Manifest, teacher: Offer
) -> list[Violation]:
    engine = teacher.engine
    assert engine is not None
    name, pool = f"{policy.job}@{policy.version}", teacher.pool.name
    told, known = manifest.base_model_digest, engine.base_model_digest
    same = told == known if told and known else manifest.base_model == engine.base_model
    if not same:
        text = (
            f"got {name}, which was trained from {manifest.base_model!r}; the pool {pool!r} serves"
            f" {engine.base_model!r}: name the pool of the teacher in {_POOL}"
        )
        return [Violation(_TEACHER, text)]
    if teacher.is_shared and manifest.kind == registry_pb.VERSION_KIND_FULL:
        text = f"got {name}, which has whole weights; the pool {pool!r} serves adapters alone"
        return [Violation(_TEACHER, text)]
    return []
