"""The counts of `/status`: the keys of ART's server, and more of Podium's own.

ART's clients are the processes that run episodes; here those of the rollout service's replicas,
which may have several each. Its results are episodes that wait for training; here those of the
groups that the step in progress has already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from podium.jobs.v1 import job_service_pb2 as pb

from podium_console.domain import views


@dataclass(frozen=True)
class RolloutWorker:
    """A replica of the rollout service."""

    address: str
    problem: str = ""
    """Why it does not answer; empty when it does."""
    processes: int = 1
    """That run episodes there and take groups now."""


@dataclass(frozen=True)
class PoolState:
    """An inference pool."""

    name: str
    engine: dict[str, Any] | None = None
    policies: tuple[dict[str, Any], ...] = ()
    problem: str = ""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "engine": self.engine,
            "policies": list(self.policies),
            "problem": self.problem,
        }


@dataclass(frozen=True)
class Overview:
    """What goes on in an installation at a moment."""

    jobs: Sequence[pb.Job]
    """Those that have not ended, newest first; what runs with its episodes' counts."""
    workers: Sequence[RolloutWorker]
    pools: Sequence[PoolState]
    more_jobs: bool = False
    """There are more than are counted."""

    def status(self) -> dict[str, Any]:
        """What `GET /status` answers."""
        return {
            "active_clients": sum(w.processes for w in self.workers if not w.problem),
            "episodes_queued": sum(job.episodes_waiting for job in self.jobs),
            "results_available": sum(
                job.groups_collected * job.spec.rollout.group_size for job in self.jobs
            ),
            "episodes_running": sum(job.episodes_running for job in self.jobs),
            "jobs": dict(sorted(Counter(views.state(job) for job in self.jobs).items())),
            "more_jobs": self.more_jobs,
            "clients": [
                {
                    "address": worker.address,
                    "answers": not worker.problem,
                    "problem": worker.problem,
                    "workers": worker.processes,
                }
                for worker in self.workers
            ],
            "pools": [pool.plain() for pool in self.pools],
        }

    def live(self) -> dict[str, Any]:
        """What pages are told."""
        return {"status": self.status(), "jobs": [views.job_row(job) for job in self.jobs]}
