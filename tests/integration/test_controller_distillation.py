"""A job with a teacher over real gRPC: what it survives, and what is refused at its creation.

The teacher's double says another number each time that it is asked, and the trainer's weights are
a digest of what it was given: a step that asked again would come out otherwise.
"""

from __future__ import annotations

from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.types.v1 import spec_pb2
from support.controlled import (
    Client,
    assert_every_step_once,
    running_controller,
    small_job,
)
from support.controlled_fixtures import fleet, registry
from support.fleet import Fleet
from support.fleet_doubles import InferenceDouble
from support.full import full
from support.processes import ControllerProcess

__all__ = ["fleet", "registry"]

STEPS = 2


@pytest.fixture
async def teacher(fleet: Fleet) -> InferenceDouble:
    """The pool of another model, with a version `old-big@3` to learn from."""
    pool = await fleet.add_pool("big", "big-model")
    manifest = registry_pb.Manifest(
        model="old-big",
        version=3,
        kind=registry_pb.VERSION_KIND_ADAPTER,
        base_model="big-model",
        base_model_digest="sha256:" + "0" * 64,
    )
    files = {"adapter/adapter_model.safetensors": b"the teacher's"}
    # The registry outlives a test.
    await fleet.client.push(files, manifest, request_id="old-big/3")
    return pool


def taught_job(**changes: Any) -> spec_pb2.JobSpec:
    return small_job(
        STEPS,
        retention=spec_pb2.RetentionSpec(keep_last=10),
        distillation=spec_pb2.DistillationSpec(teacher="old-big@3", pool="big"),
        **changes,
    )


@pytest.mark.parametrize(
    ("point", "about"),
    [
        full("score", "old-big"),
        full("step:begin", "1"),
        ("step:taken", "2"),
        full("save:published", "2"),
    ],
)
async def test_a_step_that_a_kill_interrupts_is_taken_with_what_the_teacher_said_before(
    fleet: Fleet, teacher: InferenceDouble, point: str, about: str
) -> None:
    process = ControllerProcess(fleet)
    await process.start()
    client = Client(process.address)
    try:
        hold = fleet.hold(point, about)
        job = await client.create(taught_job())
        await hold.reached()
        process.kill()
        asked = teacher.scored
        hold.release()
        await process.start()
        await client.succeeded(job.id)
        await assert_every_step_once(fleet, client, job.id, STEPS)
        trajectories = await client.trajectories(job.id)
        assert {each.teacher for each in trajectories} == {"old-big@3"}
        said = [value for t in trajectories for value in t.histories[0].tokens.teacher_logprobs]
        assert len(said) == 3 * len(trajectories)
        steps = await client.steps(job.id)
        assert [step.metrics["teacher/version"] for step in steps] == [3, 3]
        assert all(step.metrics["teacher/tokens"] == 60 for step in steps)
        assert (await client.get(job.id)).usage.teacher_tokens == 120
        if point != "score":
            # Nothing that was taught is taught again: what is left is what was not there yet.
            assert teacher.scored == len(trajectories)
        assert asked <= teacher.scored
        assert fleet.judge.judged == []
    finally:
        await client.channel.close()
        process.kill()


async def test_what_cannot_be_taught_is_refused_with_what_can(
    fleet: Fleet, teacher: InferenceDouble
) -> None:
    async def refused(**distillation: str) -> str:
        spec = taught_job()
        spec.distillation.CopyFrom(spec_pb2.DistillationSpec(**distillation))
        with pytest.raises(InvalidArgumentError) as raised:
            await client.create(spec, validate_only=True)
        return str(raised.value)

    async with running_controller(fleet) as client:
        assert "merged weights" in await refused(teacher="base")
        assert "big, default" in await refused(teacher="base", pool="huge")
        assert "the registry does not have" in await refused(teacher="old-big@4", pool="big")
        assert "distillation.teacher" in await refused(pool="big")
        teacher.vocabulary = "sha256:two"
    async with running_controller(fleet, "anew") as client:
        assert "same tokenizer" in await refused(teacher="old-big@3", pool="big")


async def test_a_teacher_that_is_gone_for_good_ends_the_job_by_its_name(
    fleet: Fleet, teacher: InferenceDouble
) -> None:
    async with running_controller(fleet) as client:
        job = await client.create(taught_job(recovery_timeout_seconds=1))
        await teacher.kill()
        failed = await client.state(job.id, pb.JOB_STATE_FAILED)
        assert failed.failure_reason == "TEACHER_UNAVAILABLE"
        assert "could be taught. The teacher says" in failed.failure_message
        # Waited for, not collected again: sampling is what costs.
        assert set(fleet.rollout.collected.values()) == {1}
