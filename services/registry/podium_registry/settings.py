"""Settings of the registry, from the environment (`PODIUM_REGISTRY_…`)."""

from __future__ import annotations

from pathlib import Path

from podium.kit.rpc import ServerSettings
from pydantic import Field
from pydantic_settings import SettingsConfigDict


class Settings(ServerSettings):
    """See the README of this service."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_REGISTRY_")

    port: int = Field(default=50052, ge=0, le=65535)
    health_port: int = Field(default=50062, ge=0, le=65535)
    metrics_port: int = Field(default=50072, ge=0, le=65535)

    data_dir: Path = Path(".podium/registry")
    """Unfinished uploads, and by default the database and the blobs."""
    database_url: str = ""
    """SQLAlchemy URL; empty for SQLite in the data folder."""
    database_wait_seconds: float = Field(default=120.0, ge=0, le=3600)
    """How long a start waits for a database that is away; then the process ends."""
    store_url: str = ""
    """Where blobs are kept: file://, s3://, gs:// or az://; empty for the data folder."""
    max_blob_bytes: int = Field(default=1 << 40, ge=1)
    """Greatest blob."""
    gc_interval_seconds: float = Field(default=900.0, ge=0)
    """Between garbage collections; 0 for none."""
    gc_grace_seconds: float = Field(default=3600.0, ge=0)
    """How long a blob that nothing names is kept after it was last looked for."""
    upload_ttl_seconds: float = Field(default=86400.0, gt=0)
    """How long an unfinished upload is kept after its last byte."""
    upload_idle_seconds: float = Field(default=120.0, gt=0)
    """Longest wait for an upload's next chunk; what came until then is kept."""
    watch_poll_seconds: float = Field(default=2.0, gt=0)
    """How soon a watch sees the changes of another replica."""

    def resolved_database_url(self) -> str:
        """The database's URL with the default filled in."""
        return self.database_url or f"sqlite+aiosqlite:///{self.data_dir.resolve()}/registry.db"

    def resolved_store_url(self) -> str:
        """The object store's URL with the default filled in."""
        return self.store_url or (self.data_dir.resolve() / "blobs").as_uri()
