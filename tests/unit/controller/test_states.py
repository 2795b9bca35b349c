"""The job state machine."""

from __future__ import annotations

from contextlib import suppress

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

REQUESTS = (job_states.after_cancel, job_states.after_pause, job_states.after_resume)
LEGAL = {(a, b) for a in ALL for b in ALL if job_states.is_legal(a, b)}


def moves_of_requests() -> set[tuple[job_states.State, job_states.State]]:
    """What people's requests lead to, in every state where they may be made."""
    made = set()
    for request in REQUESTS:
        for current in ALL:
            with suppress(FailedPreconditionError):
                made.add((current, request(current)))
    return {(current, target) for current, target in made if current != target}


def test_the_legal_moves_are_those_that_somebody_makes() -> None:
    ends = {(r, job_states.after_run(r, outcome)) for r in (R, PG, CG) for outcome in (S, F, P)}
    # The scheduler starts a job, and takes it back from a client that is silent.
    assert {(Q, R), (R, P)} | moves_of_requests() | ends == LEGAL


def test_every_state_can_come_to_be_and_come_to_an_end() -> None:
    def reached(start: job_states.State) -> set[job_states.State]:
        found = {start}
        while more := {b for a, b in LEGAL if a in found} - found:
            found |= more
        return found

    assert reached(Q) == set(ALL)
    for current in set(ALL) - job_states.ENDED:
        assert C in reached(current)
        assert (reached(current) >= {S, F}) == (current != CG), "what is being cancelled is"


def test_a_job_is_active_resting_or_ended() -> None:
    kinds = (job_states.ACTIVE, job_states.RESTING, job_states.ENDED)
    assert sorted(state for kind in kinds for state in kind) == sorted(ALL)
    assert {b for a, b in LEGAL if a in job_states.RESTING} & job_states.ACTIVE == {R}


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
