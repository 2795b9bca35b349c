"""A job whose reward is a stranger's function: controller, judge service and scorer are real."""

from __future__ import annotations

from pathlib import Path

import pytest
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from support.controlled import ATTEMPTS, GROUPS, Client, small_job
from support.controlled_fixtures import client, fleet, registry
from support.fleet import Fleet
from support.scorer_process import served_scorer

__all__ = ["client", "fleet", "registry"]

STRANGER = """
import itertools

calls = itertools.count(1)

def score(scenario, trajectories):
    match next(calls):
        case 1:
            raise KeyError("city")
        case 5:
            return [float("nan")] * len(trajectories)
    return [(n / 4, f"the {n}th") for n in range(len(trajectories))]
"""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    """A judge service whose operator is who writes the jobs, as `podium up` has it."""
    monkeypatch.setenv("PODIUM_JUDGE_TELL_FAILURES", "true")
    fleet.judge.forget()


def scored_job(address: str, steps: int) -> spec_pb2.JobSpec:
    http = spec_pb2.HttpScorerSpec(base_url=address)
    scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_HTTP, http=http)
    return small_job(steps, reward=spec_pb2.RewardSpec(scorers=[scorer]))


@pytest.mark.usefixtures("told")
async def test_a_function_that_raises_costs_its_groups_and_the_job_trains_on(
    client: Client, tmp_path: Path
) -> None:
    with served_scorer(tmp_path, STRANGER) as address:
        await client.create(scored_job(address, 2), "strangers")
        await client.succeeded("strangers")
    attempts = await client.trajectories("strangers")
    assert len(attempts) == 2 * GROUPS * ATTEMPTS
    skipped = [each for each in attempts if not each.HasField("reward")]
    assert len(skipped) == 2 * ATTEMPTS
    warnings = [
        event.message
        for event in await client.events("strangers")
        if event.type == pb.EVENT_TYPE_WARNING
    ]
    for words in ("it raised KeyError: 'city' (strangers.py, line 9)", "attempt 0 is nan"):
        assert len([text for text in warnings if words in text and "is skipped" in text]) == 1
    trained = [each for each in attempts if each.HasField("reward")]
    assert {each.reward for each in trained} == {n / 4 for n in range(ATTEMPTS)}
    assert {each.explanation for each in trained} == {f"the {n}th" for n in range(ATTEMPTS)}
