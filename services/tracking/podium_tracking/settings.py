"""The tracking service's settings."""

from __future__ import annotations

from pathlib import Path

from podium.kit.rpc import ServerSettings
from pydantic import Field
from pydantic_settings import SettingsConfigDict


class Settings(ServerSettings):
    """See the README of this service."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_TRACKING_")

    health_port: int = Field(default=50069, ge=0, le=65535)
    metrics_port: int = Field(default=50079, ge=0, le=65535)

    controller_address: str = "127.0.0.1:50051"
    data_dir: Path = Path("data/tracking")
    """What clients keep on disk until it is sent, and W&B's runs that stay offline."""
    secrets_dir: Path | None = None
    """A folder for each secret, in it a file for each variable."""
    poll_seconds: float = Field(default=5.0, gt=0, le=3600)
    """Between two looks at all jobs."""
    max_workers: int = Field(default=8, ge=1, le=256)
    """Most processes at once; each tells one tracker of one job."""
    idle_seconds: float = Field(default=300.0, gt=0, le=86400)
    """How long a worker waits for news of its job before it gives its place back."""
    stall_seconds: float = Field(default=300.0, gt=0, le=86400)
    """How long one call of a tracker's client may take before its worker is killed."""
    retry_seconds: float = Field(default=300.0, gt=0, le=86400)
    """Longest pause before a tracker that failed is tried again."""
    lookback_hours: float = Field(default=72.0, gt=0, le=87600)
    """How long after a job's end the trackers are still told of it."""
