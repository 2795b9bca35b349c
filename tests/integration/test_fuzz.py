"""A short run of `make fuzz`, and that it sees what it looks for."""

from __future__ import annotations

from typing import Any

import pytest
from fuzz.stack import fuzz, scorers_of
from fuzz.wilder import CALL_FORMATS
from podium.core.contract.judging import asks_others
from podium.types.v1 import spec_pb2
from podium_judge.domain import verdict
from support.controlled_fixtures import fleet, registry
from support.fleet import Fleet
from support.full import full

__all__ = ["fleet", "registry"]

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("seed", [13, *(full(seed) for seed in range(len(CALL_FORMATS)))])
async def test_nothing_that_is_said_ends_in_internal_or_fails_a_job(
    fleet: Fleet, seed: int
) -> None:
    """Replies, calls and judges' answers, through the real services of a job."""
    counts = await fuzz(seed, fleet, groups=4, steps=1)
    assert counts.wrong == []
    assert counts.outcomes == {"JOB_STATE_SUCCEEDED": 1}
    assert counts.replies > 32
    assert counts.calls > 0
    reward = spec_pb2.RewardSpec(scorers=scorers_of(seed, "http://scorer"))
    assert (counts.answers > 0) == asks_others(reward)


async def test_a_defect_of_the_judge_is_a_fault(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(*_: Any) -> Any:
        raise KeyError("not thought of")

    monkeypatch.setattr(verdict, "parse", parse)
    counts = await fuzz(1, fleet, groups=4, steps=1)
    assert any("calls ended with INTERNAL" in each for each in counts.wrong)
    assert any("logged: " in each for each in counts.wrong)
