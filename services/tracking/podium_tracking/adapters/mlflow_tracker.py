"""MLflow, by its own client: a run by step, found again by the job's id."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from podium.core.contract import to_yaml
from podium.core.job_environments import title_of
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import trajectory_pb2

from podium_tracking.domain.scalars import evaluation_scalars, step_scalars
from podium_tracking.domain.trackers import Delivered

_JOB = "podium_job_id"
_CURSOR = "podium_sequence"
_NOTE = "mlflow.note.content"
_MOST_METRICS = 500
_MOST_LETTERS = 500
"""Of a parameter's value; newer servers take more."""
_STATUS = {
    pb.JOB_STATE_SUCCEEDED: "FINISHED",
    pb.JOB_STATE_FAILED: "FAILED",
    pb.JOB_STATE_CANCELLED: "KILLED",
}
_ALLOWED = re.compile(r"[^\w\-./: ]")


class MlflowTracker:
    """Implements `Tracker`."""

    episodes_at: Literal["step", "end", "never"] = "never"

    def __init__(self, uri: str) -> None:
        self._client: Any = MlflowClient(tracking_uri=uri)
        self._run = ""

    def open(self, job: pb.Job) -> Delivered:
        """See `Tracker`."""
        experiment = self._experiment(job.spec.tracking.mlflow.experiment)
        # The id is a DNS label: nothing in it ends the quotes.
        found = self._client.search_runs([experiment], f"tags.{_JOB} = '{job.id}'", max_results=1)
        run = found[0] if found else self._new_run(experiment, job)
        self._run = run.info.run_id
        self._describe(job, run.data)
        sequence = int(run.data.tags.get(_CURSOR, 0))
        step = int(run.data.metrics.get("epoch", 0))
        return Delivered(sequence, step, run.info.status in _STATUS.values())

    def has(self, trajectory_id: str) -> bool:
        """Not asked."""
        raise NotImplementedError

    def episodes(self, step: int, chunk: Sequence[trajectory_pb2.Trajectory]) -> None:
        """Not told."""

    def step(self, sequence: int, step: pb.Step) -> None:
        """See `Tracker`."""
        at = step.commit_time.ToMilliseconds()
        self._log(sequence, step_scalars(step), at, step.number)

    def evaluation(self, sequence: int, evaluation: pb.Evaluation) -> None:
        """See `Tracker`."""
        at = evaluation.time.ToMilliseconds()
        self._log(sequence, evaluation_scalars(evaluation), at, evaluation.version)

    def finish(self, job: pb.Job) -> None:
        """See `Tracker`."""
        self._client.set_terminated(self._run, _STATUS[job.state], job.end_time.ToMilliseconds())

    def close(self) -> None:
        """Every call has been answered."""

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:
                # Another job's worker was faster.
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _new_run(self, experiment: str, job: pb.Job) -> Any:
        return self._client.create_run(
            experiment,
            start_time=job.create_time.ToMilliseconds(),
            run_name=job.spec.tracking.mlflow.name or job.id,
            tags={_JOB: job.id, "podium_project": job.spec.project},
        )

    def _describe(self, job: pb.Job, run: Any) -> None:
        """What the job is, where the run does not say so: who made the run may have failed then."""
        spec = job.spec
        params = {
            "model_name": spec.base_model,
            "agent_type": title_of(spec) or "client",
            "learning_rate": str(spec.training.learning_rate),
            "batch_size": str(spec.rollout.group_size),
            "max_steps_per_episode": str(spec.rollout.episode.max_turns),
        }
        # What is there stays: a parameter never changes, and people edit notes.
        lacking = [
            Param(name, value[:_MOST_LETTERS])
            for name, value in params.items()
            if name not in run.params
        ]
        note = RunTag(_NOTE, f"```\n{to_yaml(spec)[:4000]}\n```")
        tags = [] if _NOTE in run.tags else [note]
        if lacking or tags:
            self._client.log_batch(self._run, params=lacking, tags=tags)

    def _log(self, sequence: int, row: Mapping[str, float], at: int, step: int) -> None:
        """The numbers and then how far they go; a point that is sent again is the same point."""
        metrics = [
            Metric(_ALLOWED.sub("_", name)[:250], float(value), at, step)
            for name, value in row.items()
        ]
        for begin in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(self._run, metrics=metrics[begin : begin + _MOST_METRICS])
        self._client.set_tag(self._run, _CURSOR, str(sequence))


def make(environment: Mapping[str, str], folder: Path) -> MlflowTracker:
    """The tracker, with what its secret says; user and token its client reads itself."""
    return MlflowTracker(environment.get("MLFLOW_TRACKING_URI", ""))
