"""One job whose controller dies at an await, at each of them in turn, and at no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from podium_controller.training.resume import Resume
from simulation.run import Outcome, crash, undisturbed
from simulation.scenario import Shape
from support.full import long

FIXED = Shape(steps=3, groups=2, evaluated=True, keeps=1, interval=2)
"""Small, and with an evaluation, a version that goes and a version without state."""
READY = replace(FIXED, staleness=1, ready=True, dynamic=True, flat=0.3, pure=False)
"""The same, but that its steps take what is ready, and replace what cannot teach."""

pytestmark = pytest.mark.usefixtures("quiet")


def crashes(job: Shape, stride: int) -> Iterator[Outcome]:
    return (crash(point, job) for point in range(1, undisturbed(job).work, stride))


@pytest.mark.parametrize(
    ("job", "stride"), [(FIXED, 11), (READY, 23), long(FIXED, 1), long(READY, 1)]
)
def test_a_controller_that_dies_at_any_await_costs_its_job_nothing(job: Shape, stride: int) -> None:
    outcomes = list(crashes(job, stride))
    assert not [str(outcome) for outcome in outcomes if outcome.wrong]
    # Of the last points some are after the job's end, when nobody need come.
    assert sum(outcome.controllers == 2 for outcome in outcomes) > 0.9 * len(outcomes)


def test_an_await_after_which_a_version_is_not_made_again_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def forgets(self: Resume) -> None:
        self._target = None

    monkeypatch.setattr(Resume, "catch_up", forgets)
    # The awaits at which it shows are nine in a row, wherever they are.
    assert any(outcome.wrong for outcome in crashes(FIXED, 9))
