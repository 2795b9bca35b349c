"""Settings of the controller, from the environment (`PODIUM_CONTROLLER_…`)."""

from __future__ import annotations

from pathlib import Path

from podium.rpc import ServerSettings
from pydantic import Field
from pydantic_settings import SettingsConfigDict


class Settings(ServerSettings):
    """See the README of this service."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_CONTROLLER_")

    port: int = Field(default=50051, ge=0, le=65535)
    health_port: int = Field(default=50061, ge=0, le=65535)
    metrics_port: int = Field(default=50071, ge=0, le=65535)

    data_dir: Path = Path(".podium/controller")
    """Where the SQLite database lies when no other is named."""
    database_url: str = ""
    """`sqlite+aiosqlite:///path` or `postgresql+psycopg://…`; empty for SQLite in data_dir."""

    registry_address: str = "127.0.0.1:50052"
    inference_address: str = "127.0.0.1:50053"
    rollout_address: str = "127.0.0.1:50054"
    judge_address: str = "127.0.0.1:50055"
    trainer_address: str = "127.0.0.1:50056"

    max_active_jobs: int = Field(default=1, ge=1, le=1000)
    """Jobs that run at once, each with a trainer of its own; more wait in line."""
    lease_seconds: float = Field(default=10.0, ge=1, le=600)
    """How long a controller that died keeps its standby from taking over."""
    poll_seconds: float = Field(default=1.0, gt=0, le=60)
    """How soon what another replica wrote is noticed."""

    collect_slack_seconds: float = Field(default=120.0, gt=0)
    """What a group may take beyond the time of one episode."""
    judge_seconds: float = Field(default=900.0, gt=0)
    """Deadline of scoring one group."""
    step_seconds: float = Field(default=7200.0, gt=0)
    """Deadline of one optimizer step."""
    open_seconds: float = Field(default=1800.0, gt=0)
    """Deadline of opening a job at the trainer."""
    publish_seconds: float = Field(default=1800.0, gt=0)
    """Deadline of publishing a version, and of loading it."""
    close_seconds: float = Field(default=10.0, gt=0)
    """What freeing trainer and pool may take at the end of a job."""

    def resolved_database_url(self) -> str:
        """The database's URL with the default filled in."""
        return self.database_url or f"sqlite+aiosqlite:///{self.data_dir.resolve()}/controller.db"
