"""Jobs with trackers: a ledger in memory, episodes by hand, and the service as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp
from podium.core.contract import apply_defaults
from podium.core.errors import NotFoundError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_tracking.delivery import Delivery
from podium_tracking.domain.trackers import VARIABLES, Tracker
from support.processes import free_port

JOB = "search"
MODEL = "Qwen/Qwen2.5-7B-Instruct"
CREATED = 1_750_000_000
"""2025-06-15 15:06:40 UTC."""


def job_of(
    tracking: dict[str, Any], state: pb.JobState.ValueType = pb.JOB_STATE_SUCCEEDED
) -> pb.Job:
    """A job of the email search with every default."""
    spec = spec_pb2.JobSpec(
        base_model=MODEL,
        environment=spec_pb2.EnvironmentSpec(name="email_search"),
        rollout=spec_pb2.RolloutSpec(
            group_size=2, groups_per_step=1, episode=spec_pb2.EpisodeSpec(max_turns=10)
        ),
        training=spec_pb2.TrainingSpec(steps=3, learning_rate=1e-5),
        tracking=ParseDict(tracking, spec_pb2.TrackingSpec()),
    )
    job = pb.Job(id=JOB, spec=apply_defaults(spec), state=state, completed_steps=3)
    job.create_time.CopyFrom(Timestamp(seconds=CREATED))
    return job


def episode(
    step: int,
    attempt: int,
    turns: Sequence[tuple[str, float, dict[str, Any]]] = (("search: words", 0.3, {"found": 15}),),
    *,
    success: bool = True,
    reward: float = 0.85,
    failure: str = "",
) -> trajectory_pb2.Trajectory:
    """An episode whose turns are (said, reward, state after)."""
    group = f"{JOB}/s{step}/g0"
    found = trajectory_pb2.Trajectory(
        id=f"{group}/t{attempt}", group_id=group, scenario_id="inbox-1", attempt=attempt
    )
    found.reward = reward
    found.metrics.update({"success": float(success), "turns": float(len(turns))})
    found.start_time.CopyFrom(Timestamp(seconds=CREATED + step))
    found.end_time.CopyFrom(Timestamp(seconds=CREATED + step + 2))
    history = found.histories.add()
    history.messages.add(role=trajectory_pb2.ROLE_SYSTEM, content="You search emails.")
    history.messages.add(role=trajectory_pb2.ROLE_USER, content="find meeting emails")
    for said, paid, state in turns:
        history.messages.add(role=trajectory_pb2.ROLE_ASSISTANT, content=said)
        history.messages.add(role=trajectory_pb2.ROLE_USER, content=f"state: {state}")
        transition = found.transitions.add(reward=paid)
        transition.state.CopyFrom(ParseDict(state, Struct()))
        history.tokens.spans.add(length=7, policy=JOB, temperature=0.7)
    if failure:
        found.stop_reason = trajectory_pb2.STOP_REASON_FAILED
        found.failure.CopyFrom(trajectory_pb2.Failure(type=failure, message="it broke"))
    else:
        found.stop_reason = trajectory_pb2.STOP_REASON_TERMINATED
    return found


class Ledger:
    """What a controller keeps of one job, in memory."""

    def __init__(self, job: pb.Job, steps: int = 3) -> None:
        self.job = job
        self.steps_told = [self.step(number) for number in range(1, steps + 1)]
        self.kept = [
            episode(number, attempt, success=attempt == 0)
            for number in range(1, steps + 1)
            for attempt in range(2)
        ]
        self.evaluation = pb.Evaluation(version=2, mode="greedy", episodes=4)
        self.evaluation.metrics.update({"success": 0.5})

    @staticmethod
    def step(number: int) -> pb.Step:
        """A step whose numbers are those of its number."""
        found = pb.Step(number=number, version=number, group_ids=[f"{JOB}/s{number}/g0"])
        found.metrics.update(
            {
                "reward_mean": number / 10,
                "success_mean": 0.5,
                "turns_mean": 1.0,
                "train/loss": 0.2 / number,
                "train/policy_loss": 0.123,
                "train/kl_reference": 0.045,
                "train/entropy": 1.5,
                "train/learning_rate": 1e-5,
                "train/ratio_max": float("nan"),
            }
        )
        found.commit_time.CopyFrom(Timestamp(seconds=CREATED + number))
        return found

    async def get(self, job_id: str) -> pb.Job:
        if job_id != self.job.id:
            raise NotFoundError("there is no such job")
        return self.job

    async def steps(self, job_id: str) -> AsyncIterator[pb.Step]:
        for each in self.steps_told:
            yield each

    async def trajectories(
        self, job_id: str, *, step: int | None = None
    ) -> AsyncIterator[trajectory_pb2.Trajectory]:
        for each in self.kept:
            if step is None or f"/s{step}/" in each.id:
                copy = trajectory_pb2.Trajectory()
                copy.CopyFrom(each)
                yield copy

    async def watch(
        self, job_id: str, *, after_sequence: int = 0
    ) -> AsyncIterator[pb.WatchJobResponse]:
        """Created, then each step; after the second its evaluation; then the end."""
        told: list[pb.WatchJobResponse] = [pb.WatchJobResponse()]
        for step in self.steps_told:
            told.append(pb.WatchJobResponse(step=step))
            if step.number == self.evaluation.version:
                told.append(pb.WatchJobResponse(evaluation=self.evaluation))
        told.append(pb.WatchJobResponse())
        for sequence, each in enumerate(told, start=1):
            if sequence > after_sequence:
                each.event.sequence = sequence
                yield each


async def deliver(ledger: Ledger, tracker: Tracker) -> bool:
    """Tells the tracker the whole job."""
    return await Delivery(ledger, tracker, 5.0, lambda what, step: None).run(ledger.job.id)


class TrackingProcess:
    """The service as a process, with settings and variables of its own."""

    def __init__(self, controller: str, folder: Path, **variables: str) -> None:
        own = {
            "CONTROLLER_ADDRESS": controller,
            "DATA_DIR": str(folder / "tracking"),
            "HEALTH_PORT": "0",
            "METRICS_PORT": str(free_port()),
            "POLL_SECONDS": "0.2",
            "RETRY_SECONDS": "1",
            "DRAIN_SECONDS": "1",
        }
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in _TRACKERS},
            **{f"PODIUM_TRACKING_{name}": value for name, value in own.items()},
            **variables,
        }
        self.metrics = f"http://127.0.0.1:{own['METRICS_PORT']}/metrics"
        self.log = folder / "tracking.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns at once."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "podium_tracking"],
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kills it and its workers, as when a pod is lost."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> int:
        """Its exit status after SIGTERM."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(30)
        self._process = None
        return code


_TRACKERS = {name for names in VARIABLES.values() for name in names}
