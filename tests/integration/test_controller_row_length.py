"""Attempts as long as the pool's context train: a real controller, on doubles over real gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from podium.core.errors import InvalidArgumentError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from support.controlled import running_controller, small_job
from support.fleet import Fleet, fleet_of_doubles
from support.full import full
from support.processes import RegistryProcess, running_registry


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryProcess]:
    yield from running_registry()


@pytest.fixture
async def fleet(registry: RegistryProcess) -> AsyncIterator[Fleet]:
    async with fleet_of_doubles(registry) as running:
        yield running


def job_of(rows: int | None = None, answer: int = 128) -> spec_pb2.JobSpec:
    spec = small_job(1)
    spec.rollout.sampling.max_tokens = answer
    if rows is not None:
        spec.training.max_row_tokens = rows
    return spec


@pytest.mark.parametrize(("windows", "expected"), [full((2048,), 4096), ((16384, 2048), 16384)])
async def test_the_length_of_rows_follows_the_widest_context_and_is_recorded(
    fleet: Fleet, windows: tuple[int, ...], expected: int
) -> None:
    fleet.inference.window = windows[0]
    for number, window in enumerate(windows[1:]):
        (await fleet.add_pool(f"narrow-{number}")).window = window
    async with running_controller(fleet) as client:
        draft = await client.create(job_of(), validate_only=True)
        assert draft.spec.training.max_row_tokens == expected
        made = await client.create(job_of(), f"follows-{expected}")
        assert (await client.succeeded(made.id)).spec.training.max_row_tokens == expected
        told = [e for e in await client.events(made.id) if e.type == pb.EVENT_TYPE_WARNING]
    assert told == []


async def test_rows_that_cannot_hold_one_answer_are_refused(fleet: Fleet) -> None:
    async with running_controller(fleet) as client:
        with pytest.raises(InvalidArgumentError) as raised:
            await client.create(job_of(rows=511, answer=512))
        (violation,) = raised.value.violations
        assert violation.field == "job.spec.training.max_row_tokens"
        assert "got 511; allowed are numbers from 512" in violation.description
        assert (await client.create(job_of(rows=512, answer=512), validate_only=True)).id


async def test_rows_below_the_context_are_warned_of_and_an_event(fleet: Fleet) -> None:
    fleet.inference.window = 16384
    async with running_controller(fleet) as client:
        request = pb.CreateJobRequest(
            job=pb.Job(id="short-rows", spec=job_of(rows=4096)), request_id="short-rows"
        )
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


async def test_attempts_that_were_too_long_are_an_event_with_their_number(fleet: Fleet) -> None:
    fleet.trainer.tells = {"trajectories_over_max_row_tokens": 3, "trajectory_tokens_max": 5012}
    async with running_controller(fleet) as client:
        await client.succeeded((await client.create(job_of(), "too-long")).id)
        told = [e for e in await client.events("too-long") if e.type == pb.EVENT_TYPE_WARNING]
    (event,) = told
    assert event.step == 1
    assert event.message == (
        "3 attempts are left out of the loss, longer than training.max_row_tokens, 4096;"
        " the longest has 5012 tokens (OVER_MAX_ROW_TOKENS)"
    )
