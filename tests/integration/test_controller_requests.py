"""What a client may ask of the controller, and what it is told when it may not."""

from __future__ import annotations

import asyncio

import pytest
from podium.core.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
)
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from podium.types.v1 import policy_pb2, spec_pb2
from support.controlled import Client, small_job
from support.controlled_fixtures import client, fleet, registry
from support.fleet import Fleet

__all__ = ["client", "fleet", "registry"]


async def test_pages_of_every_list(fleet: Fleet, client: Client) -> None:
    job = await client.create(small_job(3, evaluation=spec_pb2.EvaluationSpec(greedy=True)))
    await client.succeeded(job.id)
    whole = {
        "ListEvents": (pb.ListEventsRequest, "events", await client.events(job.id)),
        "ListSteps": (pb.ListStepsRequest, "steps", await client.steps(job.id)),
        "ListEvaluations": (
            pb.ListEvaluationsRequest,
            "evaluations",
            await client.evaluations(job.id),
        ),
        "ListTrajectories": (
            pb.ListTrajectoriesRequest,
            "trajectories",
            await client.trajectories(job.id),
        ),
    }
    tokens: dict[str, str] = {}
    for method, (kind, field, expected) in whole.items():
        call = getattr(client.stub, method)
        request = kind(job_id=job.id, page_size=2)
        found: list[object] = []
        while True:
            reply = await call(request)
            found += getattr(reply, field)
            assert len(getattr(reply, field)) <= 2
            if not reply.next_page_token:
                break
            tokens[method] = request.page_token = reply.next_page_token
        assert found == expected, method
    # A token is good for its own method, job and filter alone.
    for method, (kind, _, _) in whole.items():
        for other, token in tokens.items():
            wrong_job = kind(job_id="other" if method == other else job.id, page_token=token)
            with pytest.raises(InvalidArgumentError), rpc_errors("controller"):
                await getattr(client.stub, method)(wrong_job)
        with pytest.raises(NotFoundError), rpc_errors("controller"):
            await getattr(client.stub, method)(kind(job_id="nobody"))


async def test_a_request_is_one_job_and_an_id_is_one_jobs(fleet: Fleet, client: Client) -> None:
    jobs = await asyncio.gather(
        *(client.create(small_job(1), request_id="the-same") for _ in range(50))
    )
    assert len({job.id for job in jobs}) == 1
    with pytest.raises(AlreadyExistsError) as raised:
        await client.create(small_job(2), request_id="the-same")
    assert raised.value.reason == "REQUEST_ID_REUSED"
    with pytest.raises(AlreadyExistsError) as raised:
        await client.create(small_job(1), jobs[0].id)
    assert raised.value.reason == "JOB_EXISTS"
    await client.succeeded(jobs[0].id)
    # The same request after the job has ended is still that job.
    again = await client.create(small_job(1), request_id="the-same")
    assert (again.id, again.state) == (jobs[0].id, pb.JOB_STATE_SUCCEEDED)


async def test_validate_only_checks_and_fills_in_but_makes_nothing(
    fleet: Fleet, client: Client
) -> None:
    checked = await client.create(small_job(1), "checked", validate_only=True)
    assert checked.id == "checked"
    assert checked.spec.training.learning_rate == 1e-5
    with pytest.raises(NotFoundError):
        await client.get("checked")
    await client.create(small_job(1), "checked")
    with pytest.raises(AlreadyExistsError):
        await client.create(small_job(1), "checked", validate_only=True)


def changed(**changes: object) -> spec_pb2.JobSpec:
    return small_job(1, **changes)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        (changed(environment=spec_pb2.EnvironmentSpec(name="doubel")), ["environment.name"]),
        (
            changed(environment=spec_pb2.EnvironmentSpec(name="double", split="no")),
            ["environment.split"],
        ),
        (
            changed(environment=spec_pb2.EnvironmentSpec(name="double", split="empty")),
            ["environment.split"],
        ),
        (changed(evaluation=spec_pb2.EvaluationSpec(split="no")), ["evaluation.split"]),
        (
            changed(
                rollout=spec_pb2.RolloutSpec(
                    sampling=policy_pb2.SamplingParams(top_p=0.5, max_tokens=4096)
                )
            ),
            ["rollout.sampling.max_tokens", "rollout.sampling.top_p"],
        ),
        (changed(training=spec_pb2.TrainingSpec(steps=0)), ["training.steps"]),
    ],
)
async def test_a_job_that_cannot_run_is_refused_by_field(
    fleet: Fleet, client: Client, spec: spec_pb2.JobSpec, fields: list[str]
) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        await client.create(spec)
    found = sorted(violation.field for violation in raised.value.violations)
    assert found == [f"job.spec.{field}" for field in fields]


async def test_options_that_the_environment_refuses(fleet: Fleet, client: Client) -> None:
    spec = small_job(1)
    spec.environment.config["refuse"] = True
    with pytest.raises(InvalidArgumentError) as raised:
        await client.create(spec)
    assert [v.field for v in raised.value.violations] == ["job.spec.environment.config"]
    assert "`refuse` is refused" in raised.value.violations[0].description


async def test_requests_to_jobs_that_are_not_there(fleet: Fleet, client: Client) -> None:
    for call in (client.get, client.cancel, client.pause, client.resume):
        with pytest.raises(NotFoundError):
            await call("nobody")
    with pytest.raises(NotFoundError, match="there is no job 'nobody'"), rpc_errors("controller"):
        await client.stub.DeleteJob(pb.DeleteJobRequest(job_id="nobody"))


async def test_what_may_not_be_meant_is_warned_of_and_an_event(
    fleet: Fleet, client: Client
) -> None:
    fleet.inference.window = 16384
    spec = small_job(1)
    spec.training.max_row_tokens = 4096
    request = pb.CreateJobRequest(job=pb.Job(id="short-rows", spec=spec), request_id="short-rows")
    (warning,) = (await client.stub.CreateJob(request)).warnings
    assert "training.max_row_tokens: got 4096" in warning
    assert "16384" in warning
    told = [e for e in await client.events("short-rows") if e.type == pb.EVENT_TYPE_WARNING]
    assert [e.message for e in told] == [warning]
    # All but the last token of the longest attempt.
    request.job.spec.training.max_row_tokens = 16383
    request.job.id, request.validate_only = "", True
    assert list((await client.stub.CreateJob(request)).warnings) == []
    await client.succeeded("short-rows")
