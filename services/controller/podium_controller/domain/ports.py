"""What the loop needs from the world, as small protocols. `peers` and `store` provide it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from podium.core.errors import Violation
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.jobs.v1 import job_service_pb2 as pb
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.trainer.v1 import trainer_service_pb2 as trainer_pb
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2

from podium_controller.domain.accounts import TrajectoryKeeper, UsageBook
from podium_controller.domain.coach import CoachEvent
from podium_controller.domain.identifiers import (
    WAITING_ROOM,
    drawn_group,
    evaluation_group,
    training_group,
)
from podium_controller.domain.job_states import State
from podium_controller.domain.registry import Registry
from podium_controller.domain.taken import TakenGroups
from podium_controller.domain.waits import NOTHING, OnWait, Wait


class Rollout(Protocol):
    """Runs episodes."""

    async def collect(
        self, request: rollout_pb.CollectGroupRequest
    ) -> list[trajectory_pb2.Trajectory]:
        """Runs every attempt of a group and returns all, by attempt and side."""

    async def scenarios(
        self, environment: spec_pb2.EnvironmentSpec, split: str, limit: int = 0
    ) -> list[trajectory_pb2.Scenario]:
        """The first `limit` scenarios of a split, all for 0, in the environment's order."""

    async def environments(self) -> list[rollout_pb.EnvironmentInfo]:
        """The built-in environments."""


class Judge(Protocol):
    """Scores groups."""

    async def check(self, reward: spec_pb2.RewardSpec, base_model: str) -> None:
        """Raises InvalidArgumentError for a reward that a job of that model cannot have."""

    async def score(self, request: judge_pb.ScoreGroupRequest) -> judge_pb.ScoreGroupResponse:
        """The group with its rewards, or with a skip_reason and none, and what it cost."""


class Trainer(Protocol):
    """One job's optimizer."""

    async def ready(self, on_wait: OnWait) -> bool:
        """Returns when the trainer can be opened, however long a cluster takes to place it.

        `on_wait` is told what it waits for, whenever that changes. True when the cluster took
        the former trainer away, as by an eviction, which is not to be counted as the job's fault.
        Raises JobFailedError when there will be none, in the cluster's words.
        """

    async def open(self, request: trainer_pb.OpenRequest) -> trainer_pb.OpenResponse:
        """Loads the model at a version."""

    async def step(
        self, job_id: str, step: int, groups: Sequence[trajectory_pb2.Group]
    ) -> trainer_pb.StepResponse:
        """Takes one optimizer step."""

    async def save(self, request: trainer_pb.SaveRequest) -> trainer_pb.SaveResponse:
        """Publishes the current step."""

    async def save_state(self, job_id: str, step: int) -> None:
        """Returns when the state of a version that `save` published is stored."""

    async def close(self, job_id: str, seconds: float | None = None) -> None:
        """Frees the model."""


@dataclass(frozen=True)
class TrainerState:
    """What a trainer says of itself."""

    base_model: str
    """Empty before it holds one."""
    max_jobs: int
    open_jobs: frozenset[str]


class SharedTrainer(Trainer, Protocol):
    """A trainer that several jobs use at once."""

    async def state(self) -> TrainerState:
        """What it holds, and for how many it has room."""


class Trainers(Protocol):
    """Where the trainers of jobs come from."""

    @property
    def own(self) -> int | None:
        """How many jobs may have one of their own at once; None for as many as want one."""

    async def violations(self, spec: spec_pb2.TrainerSpec) -> list[Violation]:
        """What of a job's wishes for a trainer of its own cannot be had here."""

    def gpus(self, spec: spec_pb2.TrainerSpec) -> int:
        """How many a job's own trainer takes, on all its nodes, as far as is known."""

    def of(self, job: JobRecord) -> Trainer:
        """The trainer of a job, which need not be there before `ready`."""

    async def retain(self, job_ids: Collection[str]) -> None:
        """Removes other jobs' own trainers, as far as they are known."""


class Environments(Protocol):
    """Where the environments of jobs come from that are given as images."""

    async def violations(self, spec: spec_pb2.EnvironmentSpec) -> list[Violation]:
        """What of a job's wishes cannot be had here."""

    async def place(self, job: JobRecord, on_wait: OnWait) -> str:
        """Runs a job's environment; returns its `host:port` once it takes connections.

        `on_wait` is told what it waits for, whenever that changes.

        Raises:
            JobFailedError: there will be none; in the cluster's words.
        """

    async def close(self, job_id: str, seconds: float | None = None) -> None:
        """Ends a job's environment, if it has one. Idempotent."""

    async def retain(self, job_ids: Collection[str]) -> None:
        """Ends the environments of all other jobs, as far as they are known."""


class Inference(Protocol):
    """Serves policies: a pool, of one pod or several."""

    async def engine(self) -> inference_pb.GetEngineResponse:
        """Describes the pool."""

    async def load(
        self, job_id: str, version: int, weight_update: spec_pb2.WeightUpdate.ValueType
    ) -> inference_pb.LoadPolicyResponse:
        """Has every pod serve a version; one that comes later fetches it for itself."""

    async def score(
        self, policy: policy_pb2.PolicyRef, token_ids: Sequence[int]
    ) -> inference_pb.ScoreTokensResponse:
        """How likely a policy would have said each token but the first in its place."""

    async def unload(self, job_id: str, seconds: float | None = None) -> None:
        """Has every pod forget a job's versions."""

    async def policies(self) -> list[inference_pb.LoadedPolicy]:
        """What the pods serve, each policy once."""

    async def gpus(self) -> int:
        """How many all pods have together."""

    async def loads(self) -> list[inference_pb.EngineLoad | None]:
        """How busy each pod says that its engine is; None for one that does not say."""


@dataclass(frozen=True)
class Peers:
    """The services that a controller drives, but for the pools."""

    rollout: Rollout
    judge: Judge
    trainers: Trainers
    environments: Environments
    registry: Registry


@dataclass(frozen=True)
class JobRecord:
    """What running a job needs to know of it."""

    id: str
    spec: spec_pb2.JobSpec
    state: State
    completed_steps: int
    trace_parent: str
    pool: str = ""
    """Where it runs or ran last; empty before it first ran."""
    wait: Wait = NOTHING
    queued_ns: int = 0
    """When it was queued last."""
    progress_ns: int = 0
    """When it last came forward: it was queued, it first ran, or a step was committed."""
    trainer_pool: str = ""
    """Where it trains or trained last; empty for a trainer of its own, and before it first ran."""


COLLECTED = "collected"
JUDGED = "judged"
CONSUMED = "consumed"


@dataclass(frozen=True)
class StoredGroup:
    """A group as the database has it; `status` is collected, judged or consumed."""

    position: int
    status: str
    group: trajectory_pb2.Group


@dataclass(frozen=True)
class Submission:
    """What a job's client has sent for a step."""

    groups: int
    """How many; 0 for no batch yet."""
    finishing: bool
    """Whether no batch will come any more."""
    gone: bool = False
    """Whether the client lives no more, and another job waits for a place."""


@dataclass(frozen=True)
class GroupKey:
    """Where a group belongs: a training step, or a version and mode of evaluation.

    In the WAITING_ROOM `position` is the number of its draw.
    """

    job_id: str
    step: int
    position: int
    mode: str = ""

    @property
    def group_id(self) -> str:
        """The id of the group that belongs there."""
        if self.mode:
            return evaluation_group(self.job_id, self.step, self.mode, self.position)
        if self.step == WAITING_ROOM:
            return drawn_group(self.job_id, self.position)
        return training_group(self.job_id, self.step, self.position)


@dataclass(frozen=True)
class Past:
    """What a job's record says of its way so far."""

    steps: Sequence[pb.Step]
    """The newest, oldest first."""
    events: Sequence[tuple[pb.EventType.ValueType, str]]
    """Type and message of all warnings and recoveries, oldest first."""


class Ledger(TakenGroups, Protocol):
    """The durable record of a job's run. Every write needs the controller's lease.

    Every method can raise DatabaseUnavailableError, every write LeaseLostError.
    """

    async def set_phase(self, job_id: str, phase: str) -> None:
        """Says what a job does now."""

    async def set_wait(self, job_id: str, reason: str, message: str) -> None:
        """Says what a job waits for; empty for nothing."""

    async def add_event(
        self, job_id: str, kind: pb.EventType.ValueType, message: str, step: int = 0
    ) -> None:
        """Appends to the job's history."""

    async def stored_groups(self, job_id: str, step: int, mode: str = "") -> dict[int, StoredGroup]:
        """The groups of a step, or of a version and mode, by position."""

    async def save_group(self, key: GroupKey, status: str, group: trajectory_pb2.Group) -> None:
        """Stores a group that is not consumed yet, in place of what was there."""

    async def save_judged(
        self,
        key: GroupKey,
        group: trajectory_pb2.Group,
        usage: judge_pb.JudgeUsage,
        month: str,
    ) -> None:
        """Stores a group as judged, and with it what its judges have used."""

    async def judge_usage(self, job_id: str) -> judge_pb.JudgeUsage:
        """What a job's judges have used, in all."""

    async def project_judge_tokens(self, project: str, month: str) -> int:
        """Tokens that the judges of all jobs of a project have used in a month."""

    async def drop_group(self, key: GroupKey) -> None:
        """Forgets a group that is not consumed yet."""

    async def commit_step(
        self, job_id: str, step: pb.Step, coach_events: Sequence[CoachEvent] = ()
    ) -> bool:
        """Commits a step with everything that it brings; False when it was committed before.

        `coach_events` say what is well or not since this step. All is there once, or not at all.
        """

    async def past(self, job_id: str, steps: int) -> Past:
        """The newest of a job's steps, and what was told of it."""

    async def commit_evaluation(self, job_id: str, evaluation: pb.Evaluation) -> None:
        """Commits an evaluation, once."""

    async def await_submission(self, job_id: str, step: int, seconds: float) -> Submission:
        """Returns when a step's batch is there or none will come, or after so many seconds."""

    async def evaluated_modes(self, job_id: str, version: int) -> set[str]:
        """Modes in which a version was evaluated."""

    async def state_of(self, job_id: str) -> State | None:
        """A job's state; None when it is unknown here."""


class RunLedger(Ledger, Protocol):
    """The ledger of a run, which can also end it."""

    async def settle(
        self, job_id: str, outcome: State, *, reason: str = "", message: str = ""
    ) -> State:
        """Ends a run; returns the state that the job has then."""

    async def rest(
        self, job_id: str, why: Wait = NOTHING, budget: spec_pb2.BudgetSpec | None = None
    ) -> State:
        """Pauses a job whose client is silent, unless there is news by now.

        Or, with `why`, one that has used the `budget`, unless it has another one by now.
        """


class LeaderLedger(RunLedger, Protocol):
    """The ledger of the controller that has the lease."""

    @property
    def usage(self) -> UsageBook:
        """What jobs have used."""

    @property
    def trajectories(self) -> TrajectoryKeeper:
        """How much is stored, and what of it can go."""

    async def in_states(self, wanted: Sequence[State]) -> list[JobRecord]:
        """Jobs in these states, in the order in which they were queued."""

    async def start(self, job_id: str, pool: str, trainer_pool: str = "") -> bool:
        """Moves a queued job to RUNNING, at a pool; False when it is queued no more.

        Args:
            trainer_pool: where it trains; empty for a trainer of its own.
        """

    async def keep_waiting(self, waits: Mapping[str, Wait]) -> None:
        """Says what queued jobs wait for, by their ids."""

    async def counts(self) -> dict[tuple[str, State], int]:
        """How many jobs of each project are in each state."""

    async def judge_tokens(self, month: str) -> dict[str, int]:
        """Tokens that judges have used in a month, by project."""
