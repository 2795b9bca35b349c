"""Supervised fine-tuning from its rows to its end: a job that this client drives."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from podium.core.contract import fork_alias
from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    Violation,
)
from podium.core.sft import HELDOUT_LOSS
from podium.core.specs.sources import JobSource, read_job
from podium.environments.scenarios.rows import Row
from podium.jobs.v1 import job_service_pb2 as pb
from podium.sdk.backend import Services
from podium.sdk.chosen import Chosen, chosen_rows
from podium.sdk.following import Follower, followed
from podium.training.backend import Backend, TrainResult
from podium.training.sft.files import File, Source, read_rows
from podium.training.sft.plan import Plan, plan
from podium.training.sft.render import LEAST_ROW_TOKENS, Demonstration, duplicates, rendered
from podium.types.v1 import spec_pb2

logger = logging.getLogger(__name__)

LOSS = "train/loss"
HELDOUT = f"train/{HELDOUT_LOSS}"


@dataclass(frozen=True)
class SftRun:
    """A job of rows that has ended well."""

    job: pb.Job
    """As it ended; `job.spec` has every default filled in."""
    losses: dict[int, float] = field(default_factory=dict)
    """By step, in nats a token, under the weights before the step."""
    heldout_losses: dict[int, float] = field(default_factory=dict)
    """By version, of the rows that are held out."""

    @property
    def id(self) -> str:
        """The job's id: the model's name in the registry, and the policy's."""
        return self.job.id

    @property
    def best_version(self) -> int | None:
        """The version of the least held-out loss; None where no row is held out."""
        return min(self.heldout_losses, key=lambda v: self.heldout_losses[v], default=None)


async def run_sft(
    client: Services,
    backend: Backend,
    spec: JobSource,
    data: Source | Sequence[File] | None,
    *,
    heldout: Source | None = None,
    from_job: Chosen | None = None,
    job_id: str = "",
    skip_bad: bool = False,
    progress: bool = True,
) -> SftRun:
    """What `AsyncClient.train_sft` says."""
    job_spec = await _spec(client, spec)
    with ExitStack() as shown:
        follower = shown.enter_context(followed("sft")) if progress else Follower()
        made = await _planned(
            client, backend, job_spec, data, heldout, from_job, skip_bad, follower.say
        )
        job_id = job_id or f"sft-{_digest(job_spec)[:12]}"
        job = await _job(client, job_id, job_spec)
        held = f", {len(made.heldout)} held out" if made.heldout else ""
        follower.say(f"job {job_id}: {len(made.rows)} rows{held}, {made.steps} steps")
        job = await _drive(client, backend, job, made, follower)
    return await _result(client, job)


async def _spec(client: Services, source: JobSource) -> spec_pb2.JobSpec:
    """The job's own copy, its fork at a number."""
    message, _, alias = read_job(source, partial=True)
    spec = spec_pb2.JobSpec()
    spec.CopyFrom(message)
    if not spec.base_model:
        raise InvalidArgumentError(violations=[Violation("base_model", "is required")])
    if spec.fork.model and not spec.fork.HasField("version"):
        version_of = client.checkpoints.get
        await fork_alias.resolve(spec, alias or "latest", version_of)
    return spec


async def _planned(
    client: Services,
    backend: Backend,
    spec: spec_pb2.JobSpec,
    data: Source | Sequence[File] | None,
    heldout: Source | None,
    from_job: Chosen | None,
    skip_bad: bool,
    say: Callable[[str], None],
) -> Plan:
    engine = await client.policies.engine()
    if engine.base_model != spec.base_model:
        raise FailedPreconditionError(
            f"the inference service at hand serves {engine.base_model!r}, whose chat template and"
            f" tokens are not those of {spec.base_model!r}; name the address of a pool that does",
            reason="BASE_MODEL_DIFFERS",
            metadata={"base_model": spec.base_model, "served": engine.base_model},
        )
    training = spec.training
    given = training.max_row_tokens if training.HasField("max_row_tokens") else 0
    limit = given or max(LEAST_ROW_TOKENS, engine.max_model_len)

    async def read(source: Source, name: str) -> list[Demonstration]:
        rows = read_rows(source, skip_bad=skip_bad, name=name).rows
        return await rendered(
            rows, backend.demonstrate, spec.rollout.episode, limit, skip_bad=skip_bad, say=say
        )

    rows = [row for each in _sources(data) for row in await read(each, "data")]
    if from_job is not None:
        rows += await chosen_rows(client.jobs, from_job, spec.base_model, limit)
    if not rows:
        text = "got no rows; give data, or a job whose episodes to learn from"
        raise InvalidArgumentError(violations=[Violation("data", text)])
    held = await read(heldout, "heldout") if heldout is not None else []
    if again := duplicates(rows):
        logger.warning("%d of %d rows are there already, token for token", again, len(rows))
    if seen := len({row.body for row in held}.intersection(row.body for row in rows)):
        logger.warning("%d rows that are held out are trained on too", seen)
    return plan(spec, rows, held)


def _sources(data: Source | Sequence[File] | None) -> list[Source]:
    """One source, or several files; a list of dicts is one."""
    if data is None:
        return []
    if isinstance(data, str | os.PathLike):
        return [data]
    files: list[Source] = []
    rows: list[Mapping[str, Any] | Row] = []
    for each in data:
        if isinstance(each, str | os.PathLike):
            files.append(each)
        else:
            rows.append(each)
    return [*files, rows] if rows or not files else files


async def _job(client: Services, job_id: str, spec: spec_pb2.JobSpec) -> pb.Job:
    """The job, made if there is none.

    Raises:
        AlreadyExistsError: JOB_DIFFERS, it is another job, or of other rows.
    """
    try:
        job = await client.jobs.get(job_id)
    except NotFoundError:
        try:
            return await client.jobs.create(spec, job_id=job_id)
        except AlreadyExistsError:
            job = await client.jobs.get(job_id)
    ours, theirs = spec, job.spec
    differing = [
        name
        for name, own, other in (
            ("base_model", ours.base_model, theirs.base_model),
            ("sft", ours.sft, theirs.sft),
            ("training.steps", ours.training.steps, theirs.training.steps),
            ("seed", ours.seed, theirs.seed),
            ("fork", ours.fork, theirs.fork),
        )
        if own != other
    ]
    if differing:
        raise AlreadyExistsError(
            f"job {job_id} was begun with other values of {', '.join(differing)}; its rows are"
            f" {theirs.sft.data_digest or 'none'}, these are {ours.sft.data_digest}: choose"
            " another id",
            reason="JOB_DIFFERS",
            metadata={"job_id": job_id, "fields": ",".join(differing)},
        )
    return job


async def _drive(
    client: Services, backend: Backend, job: pb.Job, made: Plan, follower: Follower
) -> pb.Job:
    """Sends what the job has not trained on yet, batch by batch, and waits for its end."""
    last = made.first_step + made.steps - 1
    if job.state == pb.JOB_STATE_SUCCEEDED:
        return job
    done = max(job.completed_steps, made.first_step - 1)
    if done >= made.first_step:
        follower.say(f"going on after step {done}")
    await client.sessions.drive(job.id)
    for step in range(done + 1, last + 1):
        # A batch that is there already is the same one, by its request's id.
        await client.sessions.submit(
            job.id, made.batch(step), request_id=made.request_id(step), step=step
        )
        follower.step(step, last, _losses_text(await backend.trained(job.id, step)))
    ended = await client.jobs.wait(job.id)
    if ended.state != pb.JOB_STATE_SUCCEEDED:
        state = pb.JobState.Name(ended.state).removeprefix("JOB_STATE_").lower()
        why = f": {ended.failure_message}" if ended.failure_message else ""
        raise FailedPreconditionError(
            f"job {job.id} is {state}{why}",
            reason=ended.failure_reason or "JOB_ENDED",
            metadata={"job_id": job.id, "state": state},
        )
    return ended


def _losses_text(result: TrainResult) -> str:
    parts = [("loss", LOSS), ("held out", HELDOUT)]
    return "  ".join(
        f"{word} {result.metrics[name]:.4f}" for word, name in parts if name in result.metrics
    )


async def _result(client: Services, job: pb.Job) -> SftRun:
    run = SftRun(job)
    async for step in client.jobs.steps(job.id):
        if LOSS in step.metrics:
            run.losses[step.number] = step.metrics[LOSS]
        if HELDOUT in step.metrics:
            run.heldout_losses[step.version] = step.metrics[HELDOUT]
    return run


def _digest(spec: spec_pb2.JobSpec) -> str:
    return hashlib.sha256(spec.SerializeToString(deterministic=True)).hexdigest()
