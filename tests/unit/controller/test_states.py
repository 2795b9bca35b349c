"""The job state machine."""

from __future__ import annotations

import pytest
from podium.core.errors import FailedPreconditionError
from podium.jobs.v1 import job_service_pb2 as pb
from podium_controller.domain import job_states

ALL = [value for value in pb.JobState.values() if value != pb.JOB_STATE_UNSPECIFIED]
Q, R, PG, P, CG, S, F, C = (
    pb.JOB_STATE_QUEUED,
    pb.JOB_STATE_RUNNING,
    pb.JOB_STATE_PAUSING,
    pb.JOB_STATE_PAUSED,
    pb.JOB_STATE_CANCELLING,
    pb.JOB_STATE_SUCCEEDED,
    pb.JOB_STATE_FAILED,
    pb.JOB_STATE_CANCELLED,
)

LEGAL = {
    (Q, R), (Q, P), (Q, C),
    (R, PG), (R, CG), (R, S), (R, F), (R, Q), (R, P),
    (PG, P), (PG, R), (PG, CG), (PG, S), (PG, F),
    (P, Q), (P, C),
    (CG, C),
}  # fmt: skip


@pytest.mark.parametrize("current", ALL)
@pytest.mark.parametrize("target", ALL)
def test_every_pair_of_states(current: job_states.State, target: job_states.State) -> None:
    assert job_states.is_legal(current, target) == ((current, target) in LEGAL)


def test_an_ended_job_never_leaves_its_state() -> None:
    for current in job_states.ENDED:
        assert not any(job_states.is_legal(current, target) for target in ALL)


@pytest.mark.parametrize(
    ("request_", "moves"),
    [
        (job_states.after_cancel, {Q: C, R: CG, PG: CG, P: C, CG: CG, C: C, S: None, F: None}),
        (job_states.after_pause, {Q: P, R: PG, PG: PG, P: P, CG: None, C: None, S: None, F: None}),
        (job_states.after_resume, {Q: Q, R: R, PG: R, P: Q, CG: None, C: None, S: None, F: None}),
    ],
)
def test_requests_in_every_state(request_, moves) -> None:
    assert set(moves) == set(ALL)
    for current, target in moves.items():
        if target is None:
            with pytest.raises(FailedPreconditionError) as raised:
                request_(current)
            assert raised.value.metadata["state"] == job_states.name(current)
        else:
            assert request_(current) == target
            # Idempotent: asking twice is asking once.
            assert request_(target) == target
            assert target == current or job_states.is_legal(current, target)


def test_what_people_asked_last_decides_how_a_run_ends() -> None:
    assert job_states.after_run(R, S) == S
    assert job_states.after_run(PG, P) == P
    assert job_states.after_run(PG, S) == S
    # Cancelled while it ended otherwise.
    for outcome in (S, F, P, C):
        assert job_states.after_run(CG, outcome) == C
    # Resumed while the pause took effect.
    assert job_states.after_run(R, P) == Q
    with pytest.raises(FailedPreconditionError):
        job_states.after_run(P, S)
