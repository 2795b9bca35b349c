"""Weights & Biases, by its own client.

A row's step is the number of the job's event: W&B takes steps in order and drops one that it
has, so that a row is there once, whatever process sends it again. Plots are over `epoch`.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any, Literal

import wandb
from podium.core.actions import (
    ACTION_COLUMNS,
    EPISODE_COLUMNS,
    action_rows,
    episode_row,
)
from podium.core.contract import to_plain
from podium.core.job_environments import title_of
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_tracking.adapters.cursor_file import CursorFile
from podium_tracking.domain.scalars import evaluation_scalars, step_scalars
from podium_tracking.domain.trackers import Delivered

logger = logging.getLogger(__name__)

_MOST_ROWS = 200_000
"""What W&B's client takes in one artifact; more are left out, and the log says how many."""
_FINISHED = "podium_finished"
_INIT_SECONDS = 60.0


class WandbTracker:
    """Implements `Tracker`."""

    episodes_at: Literal["step", "end", "never"] = "end"

    def __init__(self, folder: Path, key: str, base_url: str = "") -> None:
        """`folder`: for files that wait to be sent, and for runs that stay offline.

        `base_url`: of a server of one's own.
        """
        self._folder = folder
        self._key = key
        self._base_url = base_url
        self._run: Any = None
        self._cursor: CursorFile | None = None
        self._every = 0
        self._max_steps = 0
        self._episodes: list[list[Any]] = []
        self._actions: list[list[Any]] = []
        self._left_out = 0
        self._sequence = 0
        self._step = 0

    def open(self, job: pb.Job) -> Delivered:
        """See `Tracker`."""
        spec = job.spec.tracking.wandb
        offline = spec.mode == spec_pb2.WANDB_MODE_OFFLINE
        self._every = spec.artifact_every_steps
        self._max_steps = job.spec.rollout.episode.max_turns
        self._episodes, self._actions, self._left_out = [], [], 0
        self._folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=spec.project,
            entity=spec.entity or None,
            id=job.id,
            name=spec.name or _name(job),
            tags=_tags(job),
            notes=spec.notes or f"ART training with {title_of(job.spec) or 'client'} agent",
            config=_config(job),
            resume=None if offline else "allow",
            mode="offline" if offline else "online",
            settings=wandb.Settings(
                api_key=None if offline else self._key,
                **({"base_url": self._base_url} if self._base_url else {}),
                root_dir=str(self._folder),
                silent=True,
                console="off",
                disable_git=True,
                disable_code=True,
                save_code=False,
                x_disable_stats=True,
                x_disable_meta=True,
                x_save_requirements=False,
                init_timeout=_INIT_SECONDS,
            ),
        )
        self._run.define_metric("epoch", hidden=True)
        self._run.define_metric("*", step_metric="epoch", step_sync=False)
        self._run.define_metric("evaluation/*", step_metric="evaluation/version", step_sync=False)
        if offline:
            # Nobody else remembers: a folder a start, which `wandb sync` puts together.
            self._cursor = CursorFile(self._folder / f"{job.id}.cursor.json")
            delivered = self._cursor.read()
        else:
            summary = self._run.summary
            delivered = Delivered(
                int(summary.get("_step", 0)),
                int(summary.get("epoch", 0)),
                bool(summary.get(_FINISHED)),
            )
        self._sequence, self._step = delivered.sequence, delivered.step
        return delivered

    def has(self, trajectory_id: str) -> bool:
        """Not asked."""
        raise NotImplementedError

    def episodes(self, step: int, chunk: Sequence[trajectory_pb2.Trajectory]) -> None:
        """Rows of the tables, which are sent at the end."""
        for each in chunk:
            rows = action_rows(each)
            if max(len(self._episodes) + 1, len(self._actions) + len(rows)) > _MOST_ROWS:
                self._left_out += 1
                continue
            self._episodes.append(episode_row(each, self._max_steps))
            self._actions += rows

    def step(self, sequence: int, step: pb.Step) -> None:
        """See `Tracker`."""
        self._step = step.number
        self._log(sequence, step_scalars(step))
        if self._every and step.number % self._every == 0:
            self._artifact(step)

    def evaluation(self, sequence: int, evaluation: pb.Evaluation) -> None:
        """See `Tracker`."""
        self._log(sequence, evaluation_scalars(evaluation))

    def finish(self, job: pb.Job) -> None:
        """Uploads the tables."""
        if self._left_out:
            logger.warning(
                "W&B's tables have room for 200000 rows; the rest stays in the ledger",
                extra={"job_id": job.id, "left_out": self._left_out},
            )
        wandb.Table.MAX_ROWS = _MOST_ROWS
        tables = {
            "episodes": wandb.Table(columns=list(EPISODE_COLUMNS), data=self._episodes),
            "actions": wandb.Table(columns=list(ACTION_COLUMNS), data=self._actions),
        }
        self._log(self._sequence + 1, tables)
        self._run.summary["state"] = pb.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()
        self._run.summary[_FINISHED] = True
        if self._cursor is not None:
            self._cursor.write(Delivered(self._sequence, self._step, finished=True))

    def close(self) -> None:
        """Waits until W&B has everything."""
        if self._run is not None:
            run, self._run = self._run, None
            run.finish()
            if self._cursor is None:
                # It has all of it; what a killed process left goes with the next one.
                for path in self._folder.glob(f"wandb/run-*-{run.id}"):
                    shutil.rmtree(path, ignore_errors=True)

    def _log(self, sequence: int, row: dict[str, Any]) -> None:
        self._run.log(row, step=sequence)
        self._sequence = sequence
        if self._cursor is not None:
            self._cursor.write(Delivered(sequence, self._step))

    def _artifact(self, step: pb.Step) -> None:
        """By reference: the weights stay in the registry."""
        name = f"{self._run.id}@{step.version}"
        artifact = wandb.Artifact(
            f"model_epoch_{step.number}",
            type="model",
            description=f"ART model checkpoint at epoch {step.number}",
            metadata={"version": step.version, "step": step.number, "checkpoint": name},
        )
        artifact.add_reference(f"podium://{name}", name="checkpoint", checksum=False)
        self._run.log_artifact(artifact)


def _name(job: pb.Job) -> str:
    made = job.create_time.ToDatetime(UTC)
    return f"{job.id}_{made:%Y%m%d_%H%M%S}"


def _tags(job: pb.Job) -> list[str]:
    """W&B takes up to 64 characters each."""
    model = job.spec.base_model or "unknown"
    return list(
        dict.fromkeys(tag[:64] for tag in ("ART", "GRPO", model, *job.spec.tracking.wandb.tags))
    )


def _config(job: pb.Job) -> dict[str, Any]:
    """The tutorial's names, and the whole specification beside them."""
    spec = job.spec
    return {
        "model_name": spec.base_model,
        "agent_type": title_of(spec) or "client",
        "learning_rate": spec.training.learning_rate,
        "batch_size": spec.rollout.group_size,
        "max_episodes": (
            spec.training.steps * spec.rollout.groups_per_step * spec.rollout.group_size
        ),
        "max_steps_per_episode": spec.rollout.episode.max_turns,
        "job_id": job.id,
        "project": spec.project,
        "spec": to_plain(spec),
    }


def make(environment: Mapping[str, str], folder: Path) -> WandbTracker:
    """The tracker, with what its secret says."""
    for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR"):
        os.environ.setdefault(name, str(folder / name.split("_")[1].lower()))
    key, url = environment.get("WANDB_API_KEY", ""), environment.get("WANDB_BASE_URL", "")
    return WandbTracker(folder, key, url)
