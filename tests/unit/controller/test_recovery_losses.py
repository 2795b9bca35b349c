"""Which failures are one loss, whose loss it is, and when it is over."""

from __future__ import annotations

import asyncio

import pytest
from podium.core.errors import PodiumError, UnavailableError
from podium.jobs.v1 import job_service_pb2 as pb
from podium_controller.domain.errors import DatabaseUnavailableError, JobFailedError
from podium_controller.domain.stop_signals import StopSignals
from podium_controller.training import recovery as module
from podium_controller.training.recovery import Recovery, is_transient, lost_service
from podium_controller.training.reporter import Reporter


class LedgerDouble:
    """Keeps what the job's people are told."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def set_phase(self, job_id: str, phase: str) -> None:
        return None

    async def set_wait(self, job_id: str, reason: str, message: str) -> None:
        return None

    async def add_event(
        self, job_id: str, kind: pb.EventType.ValueType, message: str, step: int = 0
    ) -> None:
        self.events.append(message)


@pytest.fixture
def ledger() -> LedgerDouble:
    return LedgerDouble()


@pytest.fixture
def recovery(ledger: LedgerDouble) -> Recovery:
    return Recovery(Reporter("job", ledger), StopSignals(), 60)  # type: ignore[arg-type]


async def test_calls_that_fail_together_are_rebuilt_once(
    recovery: Recovery, ledger: LedgerDouble
) -> None:
    calls = 8
    together = asyncio.Barrier(calls)
    rebuilds = 0

    async def rebuild() -> bool:
        nonlocal rebuilds
        rebuilds += 1
        return True

    async def lost_once() -> str:
        failed = False

        async def call() -> str:
            nonlocal failed
            if failed:
                return "done"
            failed = True
            await together.wait()
            raise UnavailableError("inference cannot be reached")

        return await recovery.run("inference", call, rebuild)

    assert await asyncio.gather(*(lost_once() for _ in range(calls))) == ["done"] * calls
    assert rebuilds == 1
    assert ledger.events[0].startswith("inference is lost")
    assert sum("is back" in event for event in ledger.events) == 1


async def test_a_reply_from_before_the_loss_does_not_end_it(
    recovery: Recovery, ledger: LedgerDouble
) -> None:
    """It was on its way when the service died, and says nothing of the service now."""
    began, answer, mended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def early() -> str:
        began.set()
        await answer.wait()
        return "early"

    async def late() -> str:
        if not mended.is_set():
            raise UnavailableError("inference cannot be reached")
        return "late"

    async def rebuild() -> bool:
        answer.set()
        assert await first == "early"
        assert not any("is back" in event for event in ledger.events)
        mended.set()
        return True

    first = asyncio.create_task(recovery.run("inference", early))
    await began.wait()
    assert await recovery.run("inference", late, rebuild) == "late"
    assert sum("is back" in event for event in ledger.events) == 1


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize("late", [False, True])
async def test_the_clusters_time_is_not_the_services(
    recovery: Recovery, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """The job waits 60 seconds for a service; to place its pod takes the cluster 300."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    lost = UnavailableError("trainer cannot be reached")
    calls, rebuilds = iter([lost]), iter([lost])

    async def call() -> str:
        if error := next(calls, None):
            raise error
        return "done"

    async def ready() -> bool:
        clock.now += 300
        return False

    async def rebuild() -> bool:
        # Once it has its place it may fail as it did before, and then the time is its own.
        if error := next(rebuilds, None):
            clock.now += 61 if late else 59
            raise error
        return True

    running = recovery.run("trainer", call, rebuild, ready)
    if late:
        with pytest.raises(JobFailedError, match="stayed away for more than 60 seconds"):
            await running
    else:
        assert await running == "done"


@pytest.mark.parametrize(
    ("error", "transient", "service"),
    [
        (UnavailableError("gone"), True, "trainer"),
        (UnavailableError("gone", metadata={"peer": "registry"}), True, "registry"),
        (UnavailableError("gone", metadata={"peer": "a stranger"}), True, "trainer"),
        (PodiumError("who are you?", reason="JOB_NOT_OPEN"), True, "trainer"),
        (PodiumError("not loaded", reason="POLICY_NOT_LOADED"), True, "inference"),
        (PodiumError("no"), False, "trainer"),
        # The controller's own: every write would meet it, and the run begins again with it.
        (DatabaseUnavailableError("gone"), False, "trainer"),
    ],
)
def test_whose_loss_it_is_and_whether_time_heals_it(
    error: PodiumError, transient: bool, service: str
) -> None:
    assert is_transient(error) == transient
    assert lost_service(error, "trainer") == service
