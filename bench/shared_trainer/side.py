"""Four jobs of two projects, run in one of two ways, and what each came to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from podium import AsyncClient
from podium.core.contract import apply_defaults
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.types.v1 import policy_pb2, spec_pb2

from bench.shared_trainer.stack import Tempo, services

JOBS = {"red-1": 4, "red-2": 8, "blue-1": 16, "blue-2": 4}
"""Ranks by job; the project is before the hyphen."""
_WITHIN = 3600.0


@dataclass(frozen=True)
class Work:
    """What each job does."""

    steps: int
    groups: int
    attempts: int
    turns: int


@dataclass(frozen=True)
class Side:
    """What came of the jobs."""

    seconds: float
    """From the first job's submission to the last one's end."""
    trained: float
    """Seconds of the calls by which steps were trained, waiting for others' included."""
    collected: float
    """Seconds in which the jobs collected, summed over them."""
    longest: float
    """Seconds of the job that ran longest."""
    files: Mapping[str, tuple[tuple[str, str], ...]]
    """By job, the digest of each file of its last version: weights, moments, random state."""

    @property
    def jobs_an_hour(self) -> float:
        """Of all that were run."""
        return 3600 * len(JOBS) / self.seconds


async def run(folder: Path, model: Path, tempo: Tempo, work: Work, at_once: int) -> Side:
    """The jobs on services of their own, `at_once` at a time. A job that is not timed comes first.

    Raises:
        RuntimeError: a job did not end well.
    """
    async with services(folder, model, tempo, at_once) as client:
        await _create(client, model, Work(1, 1, 2, 1), "warm-0", 4)
        await _ended(client, "warm-0")
        began = time.perf_counter()
        for name, rank in JOBS.items():
            await _create(client, model, work, name, rank)
        ended = await asyncio.gather(*(_ended(client, name) for name in JOBS))
        seconds = time.perf_counter() - began
        phases = {"train": 0.0, "collect": 0.0}
        files = {}
        for name in JOBS:
            async for step in client.jobs.steps(name):
                for phase in phases:
                    phases[phase] += step.metrics[f"seconds/{phase}"]
            files[name] = await _last(client, name, work.steps)
    return Side(
        seconds=seconds,
        trained=phases["train"],
        collected=phases["collect"],
        longest=max(j.end_time.ToSeconds() - j.start_time.ToSeconds() for j in ended),
        files=files,
    )


def specification(model: Path, work: Work, name: str, rank: int) -> spec_pb2.JobSpec:
    """A job strictly on policy, so that what it trains does not depend on time."""
    spec = spec_pb2.JobSpec(
        base_model=str(model),
        project=name.partition("-")[0],
        environment=spec_pb2.EnvironmentSpec(name="tic_tac_toe"),
        rollout=spec_pb2.RolloutSpec(
            group_size=work.attempts,
            groups_per_step=work.groups,
            max_concurrent_groups=work.groups,
            sampling=policy_pb2.SamplingParams(max_tokens=512),
            episode=spec_pb2.EpisodeSpec(max_turns=work.turns),
        ),
        training=spec_pb2.TrainingSpec(
            steps=work.steps,
            learning_rate=1e-3,
            lora=spec_pb2.LoraSpec(rank=rank),
            dtype=spec_pb2.COMPUTE_DTYPE_FLOAT32,
        ),
        seed=7,
    )
    apply_defaults(spec)
    return spec


async def _create(client: AsyncClient, model: Path, work: Work, name: str, rank: int) -> None:
    spec = specification(model, work, name, rank)
    await client.jobs.create(spec, job_id=name, request_id=name)


async def _ended(client: AsyncClient, name: str) -> jobs.Job:
    job = await client.jobs.wait(name, within=_WITHIN)
    if job.state != jobs.JOB_STATE_SUCCEEDED or job.trainer_pool != "shared":
        state = jobs.JobState.Name(job.state)
        raise RuntimeError(f"{name} ended as {state}: {job.failure_message}")
    return job


async def _last(client: AsyncClient, name: str, step: int) -> tuple[tuple[str, str], ...]:
    version = await client.checkpoints.get(name, step)
    files = [*version.manifest.files, *version.state_files]
    if not any(file.path.startswith("state/") for file in files):
        raise RuntimeError(f"version {step} of {name} has no state")
    return tuple(sorted((file.path, file.digest) for file in files))
