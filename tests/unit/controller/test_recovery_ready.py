"""What a cluster takes to bring a trainer back is not counted against the job."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import podium_controller.training.recovery
import pytest
from podium.core.errors import FailedPreconditionError, UnavailableError
from podium.jobs.v1 import job_service_pb2 as pb
from podium_controller.domain.errors import JobFailedError, PauseRequestedError
from podium_controller.domain.stop_signals import StopSignals
from podium_controller.training.recovery import Recovery
from podium_controller.training.reporter import Reporter


class LedgerDouble:
    """Remembers nothing that these tests ask for."""

    async def set_phase(self, job_id: str, phase: str) -> None:
        return None

    async def set_wait(self, job_id: str, reason: str, message: str) -> None:
        pass

    async def add_event(
        self, job_id: str, kind: pb.EventType.ValueType, message: str, step: int = 0
    ) -> None:
        return None


def recovery(seconds: float, control: StopSignals | None = None) -> Recovery:
    reporter = Reporter("job", LedgerDouble())  # type: ignore[arg-type]
    return Recovery(reporter, control or StopSignals(), seconds)


class Trainer:
    """Fails so many times, each as if it had lost its job."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.waits = 0

    async def call(self) -> str:
        self.failures -= 1
        if self.failures >= 0:
            raise UnavailableError("trainer cannot be reached")
        return "done"

    async def rebuild(self) -> bool:
        return True


async def test_a_wait_longer_than_the_patience_does_not_end_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = Trainer(failures=2)
    now = 1000.0
    monkeypatch.setattr(
        podium_controller.training.recovery, "time", SimpleNamespace(monotonic=lambda: now)
    )

    async def ready() -> bool:
        nonlocal now
        trainer.waits += 1
        now += 100
        return False

    # It keeps what it had, so all of this is one loss.
    found = await recovery(60).run("trainer", trainer.call, ready=ready)
    assert (found, trainer.waits) == ("done", 2)


async def test_a_trainer_that_is_placed_and_does_not_answer_ends_it() -> None:
    trainer = Trainer(failures=1)

    async def never() -> bool:
        raise UnavailableError("trainer cannot be reached")

    async def ready() -> bool:
        return False

    with pytest.raises(JobFailedError) as raised:
        await recovery(0.1).run("trainer", trainer.call, never, ready)
    assert raised.value.reason == "TRAINER_LOST"


@pytest.mark.parametrize("taken", [True, False])
async def test_losses_that_are_the_clusters_doing_are_not_counted(taken: bool) -> None:
    trainer = Trainer(failures=14)

    async def ready() -> bool:
        return taken

    running = recovery(60).run("trainer", trainer.call, trainer.rebuild, ready)
    if taken:
        assert await running == "done"
    else:
        with pytest.raises(JobFailedError) as raised:
            await running
        assert "lost 11 times in the same call" in raised.value.message


async def test_what_ready_says_of_a_hopeless_trainer_ends_the_job() -> None:
    async def ready() -> bool:
        raise JobFailedError("PODIUM_TRAINER_PORT: got 'x'", reason="TRAINER_MISCONFIGURED")

    with pytest.raises(FailedPreconditionError) as raised:
        await recovery(60).run("trainer", Trainer(1).call, ready=ready)
    assert raised.value.reason == "TRAINER_MISCONFIGURED"


async def test_a_pause_does_not_wait_for_the_cluster() -> None:
    control = StopSignals()

    async def ready() -> bool:
        control.pause.set()
        await asyncio.Event().wait()
        return False

    with pytest.raises(PauseRequestedError):
        await recovery(60, control).run("trainer", Trainer(1).call, ready=ready)
