"""How fast a step's episodes sampled, whoever collected them."""

from __future__ import annotations

import pytest
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.step_metrics import STEP_METRICS, own_metrics

TOKENS = 40
SPEC = spec_pb2.JobSpec()


def episode(begin: float, end: float, tokens: int = TOKENS) -> trajectory_pb2.Trajectory:
    """One that ran from `begin` to `end`, seconds since the epoch; 0 for not known."""
    made = trajectory_pb2.Trajectory(stop_reason=trajectory_pb2.STOP_REASON_TERMINATED)
    made.start_time.FromNanoseconds(int(begin * 1e9))
    made.end_time.FromNanoseconds(int(end * 1e9))
    if tokens:
        made.histories.add().tokens.spans.add(start=0, length=tokens)
    return made


def rate(*episodes: trajectory_pb2.Trajectory, spec: spec_pb2.JobSpec = SPEC) -> float | None:
    found = own_metrics(spec, [trajectory_pb2.Group(trajectories=[e]) for e in episodes], 0)
    assert set(found) <= STEP_METRICS
    return found.get("tokens_per_second")


def test_seconds_in_which_several_ran_count_once_and_those_of_none_not() -> None:
    assert rate(episode(10, 14)) == pytest.approx(TOKENS / 4)
    assert rate(episode(12, 16), episode(10, 14), episode(11, 13)) == pytest.approx(TOKENS * 3 / 6)
    # A controller died after the first two, and the next one, an hour later, collected the third.
    of_two_lives = rate(episode(10, 14), episode(10, 12), episode(3610, 3614))
    assert of_two_lives == pytest.approx(TOKENS * 3 / 8)


def test_where_it_is_not_known_when_tokens_were_sampled_nothing_is_told() -> None:
    assert rate() is None
    assert rate(episode(10, 14, 0)) is None
    for odd in (episode(0, 14), episode(10, 0), episode(14, 10), episode(10, 10)):
        assert rate(odd) is None
        assert rate(odd, episode(10, 14)) is None
    # One that broke before it sampled says nothing about the others.
    assert rate(episode(10, 0, 0), episode(10, 14)) == pytest.approx(TOKENS / 4)
    client = spec_pb2.JobSpec(client=spec_pb2.ClientSpec())
    assert rate(episode(10, 14), spec=client) is None
