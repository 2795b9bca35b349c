"""Which jobs a trainer holds at once, and who waits for whom."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest
from podium.core.errors import FailedPreconditionError, ResourceExhaustedError
from podium.trainer.v1 import trainer_service_pb2 as pb
from podium_trainer.computing import Computing
from podium_trainer.domain.sharing import SlotClaim, check_room
from podium_trainer.servicer import TrainerServicer
from podium_trainer.slots import JobSlots, OpenJob
from support.trainer_doubles import Asked, Parked

ONE = SlotClaim("one", "base", "float32", whole=False)


def claim(job_id: str, **changes: Any) -> SlotClaim:
    return SlotClaim(**{**vars(ONE), "job_id": job_id, **changes})


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("wanted", "held", "max_jobs", "what"),
    [
        (claim("two"), [ONE], 1, "slots"),
        (claim("three"), [ONE, claim("two")], 2, "slots"),
        (claim("two", base_model="other"), [ONE], 2, "base_model"),
        (claim("two", dtype="bfloat16"), [ONE], 2, "dtype"),
        (claim("two", whole=True), [ONE], 2, "trainable"),
        (claim("two"), [claim("one", whole=True)], 2, "trainable"),
        # What no waiting mends is said first.
        (claim("three", base_model="other"), [ONE, claim("two")], 2, "base_model"),
    ],
)
def test_what_leaves_no_room_is_said(
    wanted: SlotClaim, held: list[SlotClaim], max_jobs: int, what: str
) -> None:
    with pytest.raises(ResourceExhaustedError) as refused:
        check_room(wanted, held, max_jobs)
    assert refused.value.reason == "TRAINER_BUSY"
    assert refused.value.metadata == {
        "held": what,
        # A controller frees the slots of those that are over.
        "job_id": ",".join(each.job_id for each in held),
        "base_model": "base",
        "max_jobs": str(max_jobs),
    }
    assert "job one" in refused.value.message or "jobs one, two" in refused.value.message
    if max_jobs > 1:
        assert "allowed" in refused.value.message


def test_an_error_fits_into_headers_however_many_jobs_are_open() -> None:
    held = [claim(f"{number:03}" + "x" * 125) for number in range(300)]
    with pytest.raises(ResourceExhaustedError) as refused:
        check_room(claim("more"), held, 300)
    assert "and 295 more" in refused.value.message
    ids = refused.value.metadata["job_id"].split(",")
    assert ids == [each.job_id for each in held[: len(ids)]]
    # gRPC takes 8 KiB of headers, and both are in them twice.
    assert len(refused.value.message) + len(str(refused.value.metadata)) < 3000


@pytest.mark.parametrize("held", [[], [ONE], [ONE, claim("two")]])
def test_there_is_room_for_an_adapter_on_the_same_base(held: list[SlotClaim]) -> None:
    check_room(claim("three"), held, 3)


def the_slots(max_jobs: int = 1) -> JobSlots:
    return JobSlots(cast("Any", None), max_jobs)


async def an_open_job(slots: JobSlots, job_id: str) -> OpenJob:
    job = await slots.take(claim(job_id))
    job.opened(cast("Any", object()), None, None)
    return job


async def test_who_may_be_leaving_is_waited_for() -> None:
    """A controller that closes one job and opens the next at once is not refused."""
    slots = the_slots()
    first = await an_open_job(slots, "one")
    with pytest.raises(ResourceExhaustedError):
        await slots.take(claim("two"))
    first.is_closing = True
    second = asyncio.create_task(slots.take(claim("two")))
    await settle()
    assert not second.done()
    slots.free(first)
    await slots.tell()
    assert (await second).id == "two"
    # It is being opened; whoever comes now waits for what becomes of that.
    third = asyncio.create_task(slots.take(claim("three")))
    await settle()
    assert not third.done()
    (await second).opened(cast("Any", object()), None, None)
    await slots.tell()
    with pytest.raises(ResourceExhaustedError) as refused:
        await third
    assert refused.value.metadata["job_id"] == "two"


async def test_a_call_that_waited_for_a_job_that_went_finds_none() -> None:
    slots = the_slots()
    job = await an_open_job(slots, "one")
    await job.calls.acquire()

    async def call() -> None:
        async with slots.call("one"):
            raise AssertionError

    waiting = asyncio.create_task(call())
    await settle()
    slots.free(job)
    job.calls.release()
    with pytest.raises(FailedPreconditionError) as refused:
        await waiting
    assert refused.value.reason == "JOB_NOT_OPEN"


async def test_what_strangers_name_leaves_nothing_behind() -> None:
    slots = the_slots(3)
    for number in range(50):
        job = await an_open_job(slots, f"job-{number}")
        slots.free(job)
        with pytest.raises(FailedPreconditionError):
            slots.storing(f"stranger-{number}")
    assert len(slots) == 0
    assert len(slots._storing) == 1


async def test_a_job_without_a_project_counts_for_the_default_one() -> None:
    """An empty name is none: it would have a turn of its own beside the default project's."""
    worker = Asked()
    servicer = TrainerServicer(cast("Any", worker))
    for given in ({}, {"project": ""}, {"project": "red"}):
        with pytest.raises(NotImplementedError):
            await servicer.Open(pb.OpenRequest(job_id="job", **given), cast("Any", None))
    assert worker.projects == ["default", "default", "red"]


async def test_a_session_is_parked_when_another_computes_and_no_sooner() -> None:
    said: list[str] = []
    one, two = (cast("Any", Parked(name, said)) for name in ("one", "two"))
    computing, never = Computing(0), asyncio.Event()

    async with computing.make_live("p", "one", None, never):
        computing.made(one)
    for _ in range(2):
        async with computing.make_live("p", "one", one, never):
            said.append("one computes")
    async with computing.make_live("p", "two", None, never):
        said.append("two is made")
        computing.made(two)
    async with computing.make_live("p", "one", one, never):
        said.append("one computes")
    await computing.free(one, lambda: said.append("one told"))
    async with computing.make_live("p", "two", two, never):
        pass
    await computing.free(one, lambda: said.append("told again"))
    computing.stop()
    assert said == [
        *["one computes", "one computes", "park one", "two is made"],
        *["park two", "unpark one", "one computes", "one told", "unpark two"],
    ]


async def test_a_parked_session_is_copied_while_another_computes() -> None:
    """So its weights are published without waiting for another job's step."""
    said: list[str] = []
    one, two = (cast("Any", Parked(name, said)) for name in ("one", "two"))
    computing, never = Computing(0), asyncio.Event()
    computing.made(one)
    entered, leave = threading.Event(), threading.Event()

    def train() -> None:
        entered.set()
        assert leave.wait(60)

    async def long_step() -> None:
        async with computing.make_live("p", "two", two, never):
            await computing.run(train)

    step = asyncio.create_task(long_step())
    await asyncio.to_thread(entered.wait)
    assert await computing.copy(one, lambda: "copied") == "copied"
    leave.set()
    await step
    computing.stop()
    assert said == ["park one", "unpark two"]
