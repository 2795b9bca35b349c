"""Which trajectories nobody needs any more, but to read them."""

from __future__ import annotations

from podium.types.v1 import spec_pb2


def last_spare_step(spec: spec_pb2.JobSpec, completed: int) -> int:
    """The last committed step whose groups a job in progress can do without; 0 for none.

    A damaged version is made again from the newest whole one before it, with the stored groups
    of the steps between (docs/decisions/0022): those since the oldest version that the job keeps
    stay. A job that keeps a single version has nothing but its beginning to go back to, and so
    needs all of them.
    """
    kept = spec.retention.keep_last
    return max(0, completed - kept) if kept > 1 else 0
