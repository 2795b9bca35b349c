"""Settings of the controller, from the environment (`PODIUM_CONTROLLER_…`)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from podium.kit.rpc import ServerSettings
from podium.kit.rpc.pools import DEFAULT_POOL, PoolAddresses, TrainerPoolSettings
from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

UseJobSets = Literal["auto", "always", "never"]


class Settings(ServerSettings):
    """See the README of this service."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_CONTROLLER_")

    port: int = Field(default=50051, ge=0, le=65535)
    health_port: int = Field(default=50061, ge=0, le=65535)
    metrics_port: int = Field(default=50071, ge=0, le=65535)

    data_dir: Path = Path(".podium/controller")
    """Where the SQLite database lies when no other is named."""
    database_url: str = ""
    """`sqlite:///path` or `postgresql://…`; empty for SQLite in data_dir."""
    database_wait_seconds: float = Field(default=120.0, ge=0, le=3600)
    """How long a start waits for a database that is away; then the process ends."""

    registry_address: str = "127.0.0.1:50052"
    inference_address: str = "127.0.0.1:50053"
    """The one inference pool; unused with pools."""
    pools: PoolAddresses = Field(default={})
    """Several: `name=address,…` or a JSON object, as the rollout service has them."""
    rollout_address: str = "127.0.0.1:50054"
    judge_address: str = "127.0.0.1:50055"
    trainer_address: str = "127.0.0.1:50056"
    """The one trainer, of every job in turn; unused with a trainer_template. Empty, with
    trainer_pools, for none but those."""
    trainer_pools: TrainerPoolSettings = Field(default={})
    """Trainers that several LoRA jobs of one base model share: `name=address,…` or a JSON object,
    whose values may be objects with address, base_model, max_jobs and gpus."""

    trainer_template: Path | None = None
    """A batch/v1 Job as YAML: every job gets a trainer of its own, made from it, on Kubernetes.
    Or a folder with a Job for each pool, NAME.yaml."""
    trainer_owner: str = ""
    """`apiVersion/Kind/name` of an object that takes all trainers, and environments that are
    images, with it when it is deleted."""
    environment_template: Path | None = None
    """An apps/v1 Deployment as YAML: what environments that are images are made from."""
    trainer_job_set: UseJobSets = "auto"
    """Whether a trainer is a JobSet, and not a Job alone; auto: where the cluster has JobSets."""
    trainer_server_name: str = "podium-trainer"
    """The name in the certificate of trainers on Kubernetes, with TLS."""
    gpu_resource: str = "nvidia.com/gpu"
    """How the cluster's nodes name their GPUs."""
    namespace: str = ""
    """Where trainers run; empty for the controller's own namespace."""

    projects_file: Path | None = None
    """Limits of projects, as YAML by their names; without it every name is a project."""
    tracking: bool | None = None
    """Whether there is a tracking service; false: who submits a job that names trackers is warned.
    None for not known."""
    tracking_secrets_file: Path | None = None
    """The secrets of the tracking service, as YAML by their names, each with the projects whose
    jobs may name it; without it any may be named."""
    max_active_jobs: int = Field(default=1, ge=1, le=1000)
    """Jobs that run at once, each with a trainer of its own; more are queued."""
    max_jobs_per_pool: int = Field(default=16, ge=1, le=1000)
    """Jobs that share a pool of adapters at once; a pool of merged weights takes one."""
    pool_episodes: int = Field(default=256, ge=1)
    """Episodes that jobs in competition have in flight at a pool; a job alone is not bound."""
    lease_seconds: float = Field(default=10.0, ge=1, le=600)
    """How long a controller that died keeps its standby from taking over."""
    poll_seconds: float = Field(default=1.0, gt=0, le=60)
    """How soon what another replica wrote is noticed."""

    gpu_hour_price: float = Field(default=0.0, ge=0)
    """What an hour of a GPU costs; 0 for no price, and no cost in what jobs have used."""
    trainer_gpus: int = Field(default=0, ge=0, le=1_000_000)
    """GPUs of the trainer at trainer_address, for accounts; unused with a trainer_template."""
    trajectory_store_max_bytes: int = Field(default=5 * 2**30, ge=0)
    """What stored trajectories may take together: above it the oldest are deleted that nothing
    but a reader needs. 0 for no limit."""
    trajectory_retention_days: float = Field(default=0.0, ge=0, le=36500)
    """Such trajectories are deleted when they are older than this. 0 for no such limit."""
    evaluation_store_max_bytes: int = Field(default=2**30, ge=0)
    """What stored evaluations may take together; above it none is stored, for a number that
    somebody may have told of is not to go by itself. 0 for no limit."""
    evaluation_retention_days: float = Field(default=0.0, ge=0, le=36500)
    """Stored evaluations that are older than this are deleted when the next one is stored. 0 for
    no such limit."""

    collect_slack_seconds: float = Field(default=120.0, gt=0)
    """What a group may take beyond the time of one episode."""
    judge_seconds: float = Field(default=900.0, gt=0)
    """Deadline of scoring one group."""
    teacher_seconds: float = Field(default=600.0, gt=0)
    """Deadline of a teacher's reading of one conversation."""
    step_seconds: float = Field(default=7200.0, gt=0)
    """Deadline of one optimizer step."""
    open_seconds: float = Field(default=1800.0, gt=0)
    """Deadline of opening a job at the trainer."""
    turn_seconds: float = Field(default=21600.0, gt=0)
    """How long a step, or opening a job, may wait for others' steps at a trainer pool, beside its
    own deadline."""
    publish_seconds: float = Field(default=1800.0, gt=0)
    """Deadline of publishing a version, and of loading it."""
    close_seconds: float = Field(default=10.0, gt=0)
    """What freeing trainer and pool may take at the end of a job."""

    @model_validator(mode="after")
    def _has_trainers(self) -> Settings:
        if not self.trainer_address and not self.trainer_pools and self.trainer_template is None:
            raise ValueError("trainer_address is empty; that is allowed with trainer_pools")
        return self

    def pool_addresses(self) -> dict[str, str]:
        """The pools by name."""
        return self.pools or {DEFAULT_POOL: self.inference_address}

    def resolved_database_url(self) -> str:
        """The database's URL with the default filled in."""
        return self.database_url or f"sqlite+aiosqlite:///{self.data_dir.resolve()}/controller.db"
