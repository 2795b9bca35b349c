"""Settings of gitops, from the environment (`PODIUM_GITOPS_…`)."""

from __future__ import annotations

from podium.kit.rpc import ServerSettings
from pydantic import Field
from pydantic_settings import SettingsConfigDict


class Settings(ServerSettings):
    """See the README of this service."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_GITOPS_")

    health_port: int = Field(default=50067, ge=0, le=65535)
    metrics_port: int = Field(default=50077, ge=0, le=65535)

    controller_address: str = "127.0.0.1:50051"
    namespace: str = ""
    """Where the resources are; empty for its own namespace."""
    poll_seconds: float = Field(default=10.0, gt=0, le=3600)
    """How old a status may be; one call of ListJobs each, however many resources there are."""
