"""A job as long as jobs get, written through the controller's own store."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from podium.core.contract import apply_defaults
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import JUDGED, GroupKey
from podium_controller.domain.timestamps import now_ns, timestamp
from podium_controller.store import Database, JobStore, LeaseStore, SqlLedger
from podium_controller.store.jobs import NewJob

PROMPT_TOKENS, TURN_TOKENS, TURNS = 300, 80, 4
EVALUATED_EVERY = 25
PER_STEP = 40
"""Numbers of a step besides those that the pages have panels for."""


@dataclass(frozen=True)
class Size:
    """How long a job is: `steps * groups * attempts` episodes."""

    steps: int = 500
    groups: int = 5
    attempts: int = 4


@asynccontextmanager
async def filling(url: str) -> AsyncIterator[Filler]:
    """Fills a new database.

    It holds the lease meanwhile, so that a controller on the same database shows the jobs and
    runs none.
    """
    database, notifications = Database(url), Notifications()
    try:
        await database.migrate()
        epoch = await LeaseStore(database).acquire("filler", 86_400)
        assert epoch is not None, "the database is not new"
        ledger = SqlLedger(database, notifications, epoch)
        yield Filler(JobStore(database, notifications), ledger)
    finally:
        await database.close()


class Filler:
    """Writes jobs as the controller's loop would."""

    def __init__(self, jobs: JobStore, ledger: SqlLedger) -> None:
        """`ledger` holds the lease."""
        self._jobs = jobs
        self._ledger = ledger
        self._rng = random.Random(0)

    async def job(self, job_id: str, size: Size, steps: int) -> None:
        """A running job with so many of its steps committed, evaluated now and then."""
        spec = spec_pb2.JobSpec(base_model="m", seed=len(job_id))
        spec.environment.name = "email_search"
        spec.training.steps = size.steps
        spec.rollout.group_size = size.attempts
        spec.rollout.groups_per_step = size.groups
        apply_defaults(spec)
        await self._jobs.create(NewJob(job_id, spec, job_id, "", ""))
        await self._ledger.start(job_id, "default")
        await self._evaluate(job_id, 0)
        for number in range(1, steps + 1):
            await self.step(job_id, size, number)

    async def step(self, job_id: str, size: Size, number: int) -> None:
        """Commits a job's next step, with its groups."""
        ids = []
        for index in range(size.groups):
            group = self._group(job_id, number, index, size.attempts)
            await self._ledger.save_group(GroupKey(job_id, number, index), JUDGED, group)
            ids.append(group.id)
        committed = pb.Step(number=number, version=number, group_ids=ids)
        committed.start_time.CopyFrom(timestamp(now_ns() - 10**9))
        committed.commit_time.CopyFrom(timestamp(now_ns()))
        for name, value in self._numbers(number, size):
            committed.metrics[name] = value
        assert await self._ledger.commit_step(job_id, committed)
        if number % EVALUATED_EVERY == 0:
            await self._evaluate(job_id, number)

    async def _evaluate(self, job_id: str, version: int) -> None:
        for mode in ("sampled", "greedy"):
            made = pb.Evaluation(version=version, mode=mode, episodes=100)
            made.metrics["success"] = _level(version)
            await self._ledger.commit_evaluation(job_id, made)

    def _group(self, job_id: str, step: int, index: int, attempts: int) -> trajectory_pb2.Group:
        made = trajectory_pb2.Group(id=f"{job_id}/s{step}/g{index}", job_id=job_id, step=step)
        for attempt in range(attempts):
            self._attempt(made, attempt)
        return made

    def _attempt(self, group: trajectory_pb2.Group, attempt: int) -> None:
        rng = self._rng
        length = PROMPT_TOKENS + 2 * TURNS * TURN_TOKENS
        made = group.trajectories.add(
            id=f"{group.id}/t{attempt}",
            group_id=group.id,
            scenario_id=f"train-{rng.randrange(5000)}",
            attempt=attempt,
            reward=rng.random(),
            stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
            explanation="It found the email, and named the wrong sender in its answer.",
        )
        made.start_time.CopyFrom(timestamp(now_ns() - 4 * 10**9))
        made.end_time.CopyFrom(timestamp(now_ns()))
        made.metrics["success"] = float(rng.random() < _level(group.step))
        made.metrics["turns"] = TURNS
        history = made.histories.add()
        history.tokens.token_ids.extend(rng.randrange(49_152) for _ in range(length))
        for turn in range(TURNS):
            history.messages.add(
                role=trajectory_pb2.ROLE_USER, content="3 emails: budget, travel, a lunch. " * 8
            )
            history.messages.add(
                role=trajectory_pb2.ROLE_ASSISTANT, content="SEARCH from:dana budget " * 4
            )
            start = PROMPT_TOKENS + (2 * turn + 1) * TURN_TOKENS
            history.tokens.spans.add(
                start=start, length=TURN_TOKENS, weights_version=group.step - 1
            )
            history.tokens.logprobs.extend(-rng.random() for _ in range(TURN_TOKENS))

    def _numbers(self, number: int, size: Size) -> Iterator[tuple[str, float]]:
        rng, level = self._rng, _level(number)
        yield "reward_mean", level + rng.uniform(-0.05, 0.05)
        yield "success_mean", level + rng.uniform(-0.05, 0.05)
        yield "tokens_sampled", float(size.groups * size.attempts * TURNS * TURN_TOKENS)
        yield "staleness_max", 0.0
        yield "train/loss", rng.uniform(-0.02, 0.02)
        yield "train/kl_reference", 0.05 * level
        yield "train/entropy", 0.8 - 0.6 * level
        yield "train/logprob_difference_mean", rng.uniform(0.03, 0.05)
        yield "train/grad_norm", rng.uniform(0.4, 1.4)
        yield "train/clip_fraction", rng.uniform(0.0, 0.005)
        for phase in ("collect", "judge", "train", "publish", "serve", "evaluate", "wait"):
            yield f"seconds/{phase}", 5 + rng.random()
        for index in range(PER_STEP):
            yield f"train/other_{index}", rng.random()


def _level(step: int) -> float:
    return 1 / (1 + math.exp(-(step - 150) / 40))
