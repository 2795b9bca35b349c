"""Which steps' state is stored, and which trajectories nobody needs any more, but to read them."""

from __future__ import annotations

from podium.types.v1 import spec_pb2


def stores_state(spec: spec_pb2.JobSpec, step: int) -> bool:
    """Whether the state of a step is stored: of every n-th one, and of the last."""
    return step % _interval(spec) == 0 or step == spec.training.steps


def last_step_with_state(spec: spec_pb2.JobSpec, step: int) -> int:
    """The newest step up to one whose state the interval has stored, or is storing.

    A fork's first version, between two of them, has state whatever the interval.
    """
    last = step - step % _interval(spec)
    return max(last, spec.fork.version) if spec.HasField("fork") else last


def last_spare_step(spec: spec_pb2.JobSpec, completed: int) -> int:
    """The last committed step whose groups a job in progress can do without; 0 for none.

    A version without state, and a damaged one, is made again from a whole one before it, with
    the stored groups of the steps between (docs/decisions/0022, 0057). State is on its way for
    one version at a time: of the last three steps whose state is stored the newest may lack it,
    and the one before it may be damaged. The groups since the third stay, and those since the
    oldest version that the job keeps. A job that keeps a single version has nothing but its
    beginning to go back to, and so needs all of them.
    """
    kept = spec.retention.keep_last
    if kept <= 1:
        return 0
    third = completed - completed % _interval(spec) - 2 * _interval(spec)
    return max(0, min(completed - kept, third))


def _interval(spec: spec_pb2.JobSpec) -> int:
    # Jobs that were submitted before there was one have none.
    return max(1, spec.retention.state_interval)
