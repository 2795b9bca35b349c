"""What a job shows while a service comes and goes."""

from __future__ import annotations

import asyncio

import pytest
from podium_controller.domain.waits import NOTHING, Wait
from podium_controller.training import reporter as module
from podium_controller.training.reporter import RECOVER, TRAIN, Reporter
from support.loop_clock import LoopClock
from support.waiting import eventually

LOST = Wait("TRAINER_LOST", "trainer cannot be reached")


class LedgerDouble:
    """What is shown, and how often it was written."""

    def __init__(self) -> None:
        self.phase = ""
        self.wait = NOTHING
        self.writes = 0

    async def set_phase(self, job_id: str, phase: str) -> None:
        self.phase = phase
        self.writes += 1

    async def set_wait(self, job_id: str, reason: str, message: str) -> None:
        self.wait = Wait(reason, message)
        self.writes += 1

    @property
    def shown(self) -> tuple[str, Wait]:
        return self.phase, self.wait


@pytest.fixture
def ledger() -> LedgerDouble:
    return LedgerDouble()


@pytest.fixture
async def reporter(ledger: LedgerDouble, monkeypatch: pytest.MonkeyPatch) -> Reporter:
    monkeypatch.setattr(module, "_LINGER_SECONDS", 0.2)
    made = Reporter("job", ledger)  # type: ignore[arg-type]
    await made.set_phase(TRAIN)
    return made


async def lose(reporter: Reporter, wait: Wait = LOST) -> None:
    async with reporter.recovering(wait):
        pass


async def test_attempts_that_fail_at_once_are_written_once(
    ledger: LedgerDouble, reporter: Reporter
) -> None:
    for _ in range(20):
        await lose(reporter)
    assert ledger.shown == (RECOVER, LOST)
    assert ledger.writes == 3
    await eventually(lambda: ledger.shown == (TRAIN, NOTHING), within=30)
    assert ledger.writes == 5


async def test_another_reason_is_written(ledger: LedgerDouble, reporter: Reporter) -> None:
    other = Wait("REGISTRY_LOST", "registry cannot be reached")
    await lose(reporter)
    await lose(reporter, other)
    assert ledger.shown == (RECOVER, other)


async def test_a_new_phase_does_not_wait(ledger: LedgerDouble, reporter: Reporter) -> None:
    await lose(reporter)
    await reporter.set_phase("publish")
    assert ledger.shown == ("publish", NOTHING)


async def test_a_loss_after_it_was_over_is_shown_again(
    ledger: LedgerDouble, reporter: Reporter
) -> None:
    await lose(reporter)
    await eventually(lambda: ledger.shown == (TRAIN, NOTHING), within=30)
    await lose(reporter)
    assert ledger.shown == (RECOVER, LOST)


async def test_nothing_is_written_after_the_end(ledger: LedgerDouble, reporter: Reporter) -> None:
    clock = LoopClock()
    await lose(reporter)
    await reporter.close()
    writes = ledger.writes
    clock.advance(60)
    for _ in range(100):
        await asyncio.sleep(0)
    assert ledger.writes == writes
