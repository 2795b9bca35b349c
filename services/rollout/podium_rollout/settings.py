"""Settings of the rollout service, from the environment (`PODIUM_ROLLOUT_…`)."""

from __future__ import annotations

import os
from typing import Any

from podium.kit.rpc import ServerSettings
from podium.kit.rpc.pools import DEFAULT_POOL, PoolAddresses
from pydantic import Field, IPvAnyNetwork, model_validator
from pydantic_settings import SettingsConfigDict

MAX_WORKERS = 256


class Settings(ServerSettings):
    """See the README of this service."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_ROLLOUT_")

    port: int = Field(default=50054, ge=0, le=65535)
    health_port: int = Field(default=50064, ge=0, le=65535)
    metrics_port: int = Field(default=50074, ge=0, le=65535)

    inference_address: str = "127.0.0.1:50053"
    """The inference pool; unused with pools."""
    pools: PoolAddresses = Field(default={})
    """Several: `name=address,…` or a JSON object. The first is that of requests that name none."""
    workers: int = Field(default=1, ge=1, le=MAX_WORKERS)
    """Processes that run episodes, each on a core; 1 for this one alone. Where it is not set,
    `ART_CLIENT_WORKERS` is read, as ART's clients do."""
    max_groups: int = Field(default=256, ge=1)
    """Groups at once, of all workers together; more are refused with RESOURCE_EXHAUSTED."""
    generate_timeout_seconds: float = Field(default=300.0, gt=0)
    """Of one generation, within the episode's own deadline."""
    environment_resume_seconds: float = Field(default=30.0, gt=0)
    """How long a remote environment's session is sought after its connection broke."""

    player_timeout_seconds: float = Field(default=120.0, gt=0)
    """Of one request to a model that plays beside the policy, within the episode's own deadline."""
    player_attempts: int = Field(default=4, ge=1, le=20)
    """Requests that one of its turns may take when its API is busy or unreachable."""
    trusted_base_urls: tuple[str, ...] = ()
    """Addresses of players' models that keys may be sent to, as a JSON list."""
    tell_failures: bool = False
    """Whether jobs are told what any player's model of theirs answered, and not only one at an
    address that is trusted: where users are the operators, as on a laptop."""
    allowed_networks: tuple[IPvAnyNetwork, ...] = ()
    """Networks of link-local and metadata addresses that players' models may be at all the same,
    as a JSON list."""

    @model_validator(mode="before")
    @classmethod
    def _workers_as_art_names_them(cls, given: dict[str, Any]) -> dict[str, Any]:
        theirs = os.environ.get("ART_CLIENT_WORKERS", "").strip()
        if not theirs or "workers" in given:
            return given
        if not (theirs.isascii() and theirs.isdigit() and 1 <= int(theirs[:9]) <= MAX_WORKERS):
            raise ValueError(
                f"ART_CLIENT_WORKERS: got {theirs[:80]!r}: must be a whole number from 1 to "
                f"{MAX_WORKERS}"
            )
        return given | {"workers": theirs}

    def pool_addresses(self) -> dict[str, str]:
        """The pools by name."""
        return self.pools or {DEFAULT_POOL: self.inference_address}
