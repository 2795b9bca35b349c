"""Settings of the console, from the environment (`PODIUM_CONSOLE_…`)."""

from __future__ import annotations

from podium.core import trace_links
from podium.kit.rpc import ServerSettings
from podium.kit.rpc.pools import DEFAULT_POOL, PoolAddresses
from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict


class Settings(ServerSettings):
    """See the README of this service."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_CONSOLE_")

    port: int = Field(default=50058, ge=0, le=65535)
    """HTTP; 0 for any free one. There is no gRPC."""
    health_port: int = Field(default=50068, ge=0, le=65535)
    metrics_port: int = Field(default=50078, ge=0, le=65535)

    controller_address: str = "127.0.0.1:50051"
    registry_address: str = "127.0.0.1:50052"
    inference_address: str = "127.0.0.1:50053"
    """The one inference pool; unused with pools."""
    pools: PoolAddresses = Field(default={})
    """Several: `name=address,…` or a JSON object, as the controller has them."""
    rollout_address: str = "127.0.0.1:50054"

    allowed_hosts: str = "localhost,127.0.0.1,[::1]"
    """Names that browsers may call it by, without ports; `*` allows every one. It keeps other
    pages' scripts out that have their own name resolve to this address."""
    public_https: bool = False
    """Whether browsers come by HTTPS to a proxy in front: the cookie is then for HTTPS alone."""
    client_certificates: bool = True
    """With TLS, whether browsers must show a certificate of the authorities too. Without, the
    bearer token alone says who may do what, so the services must ask for one."""

    call_seconds: float = Field(default=10.0, gt=0, le=300)
    """How long a service may take to answer; then the page says which one does not."""
    load_seconds: float = Field(default=300.0, gt=0, le=3600)
    """How long a pool may take to load a policy for a chat."""
    chat_seconds: float = Field(default=600.0, gt=0, le=3600)
    """How long an answer of a chat may take."""
    refresh_seconds: float = Field(default=2.0, ge=0.05, le=60)
    """How often the counts are asked for while somebody looks at them."""
    max_streams: int = Field(default=256, ge=1)
    """Pages that are told of changes, and watches of the API, at once; more are refused."""

    trace_url: str = ""
    """Where people see a trace, such as `https://langfuse.example/project/p/traces/{trace_id}`;
    empty for no links."""

    @field_validator("trace_url")
    @classmethod
    def _check_trace_url(cls, value: str) -> str:
        if value and not trace_links.usable(value):
            allowed = "allowed are addresses with http or https that hold {trace_id}"
            raise ValueError(f"is no address of traces; {allowed}")
        return value

    @property
    def pool_addresses(self) -> dict[str, str]:
        """Every pool by name."""
        return dict(self.pools) or {DEFAULT_POOL: self.inference_address}

    @property
    def hosts(self) -> frozenset[str]:
        """The allowed names, in lower case; empty for every one."""
        names = frozenset(filter(None, (n.strip().lower() for n in self.allowed_hosts.split(","))))
        return frozenset() if "*" in names else names
