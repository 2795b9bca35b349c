"""Settings that every service has."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, Self, TypeVar

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from podium.kit.rpc.client_config import DEFAULT_MESSAGE_BYTES
from podium.kit.rpc.tls import Tls
from podium.kit.rpc.watched_files import Token, TokenFile

_TLS_FILES = ("tls_certificate_file", "tls_key_file", "tls_authorities_file")


class ServerSettings(BaseSettings):
    """Subclassed by each service with `env_prefix="PODIUM_<SERVICE>_"` and fields of its own."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    """Address to listen on, for all three ports."""
    port: int = Field(default=0, ge=0, le=65535)
    """gRPC port; 0 for any free one."""
    health_port: int = Field(default=0, ge=0, le=65535)
    """Port of grpc.health.v1 and nothing else; 0 for any free one."""
    metrics_port: int = Field(default=0, ge=0, le=65535)
    """Port of Prometheus metrics; 0 for any free one."""
    drain_seconds: float = Field(default=20.0, ge=0, le=3600)
    """How long running calls may go on after SIGTERM."""
    max_concurrent_rpcs: int = Field(default=1024, ge=1)
    """Calls at once, watches aside; more are refused with RESOURCE_EXHAUSTED. As many may wait for
    their first message."""
    max_concurrent_watches: int = Field(default=512, ge=1)
    """Watches at once (server streams named Watch…); more are refused with RESOURCE_EXHAUSTED."""
    first_message_seconds: float = Field(default=60.0, gt=0)
    """How long a call may take to send its first message."""
    max_message_bytes: int = Field(default=DEFAULT_MESSAGE_BYTES, ge=1024, le=2**31 - 1)
    """Greatest message, each way; a greater one is refused with RESOURCE_EXHAUSTED. A method takes
    requests of 4 MiB, unless its contract says more (`max_request_bytes`)."""
    max_connection_age_seconds: float = Field(default=600.0, gt=0)
    """Clients reconnect after this long, and so find new replicas."""
    max_connection_age_grace_seconds: float = Field(default=3600.0, gt=0)
    """How long calls on an aged connection may still take."""
    reflection: bool = False
    """Whether to serve grpc.reflection, for tools such as grpcurl."""
    auth_tokens_file: Path | None = None
    """Bearer tokens that callers may present, one a line; unset allows every caller. It and the
    files below are read again when they change."""
    token_file: Path | None = None
    """The bearer token that this service presents to its peers."""
    tls_certificate_file: Path | None = None
    """PEM of the certificate that this service shows to callers and to its peers. With it and the
    two below, all calls are by mutual TLS; without them, in plain text."""
    tls_key_file: Path | None = None
    """PEM of its key."""
    tls_authorities_file: Path | None = None
    """PEM of the authorities whose certificates callers and peers may show."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least level that is logged."""
    log_format: Literal["json", "text"] = "text"
    """One JSON object a line, or text for people."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """No file is read, and no variable is looked for where none is set: a look at the type of
        each field, once for each variable that might be its, takes longer than all else here."""
        prefix = cls.model_config.get("env_prefix", "")
        names = {(prefix + field).lower() for field in cls.model_fields}
        if any(name.lower() in names for name in os.environ):
            return init_settings, env_settings
        return (init_settings,)

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        missing = [name for name in _TLS_FILES if getattr(self, name) is None]
        if missing and len(missing) < len(_TLS_FILES):
            raise ValueError(f"{', '.join(missing)} must be set too, or no file for TLS")
        return self

    def tls(self) -> Tls | None:
        """What to show callers and peers; None for plain text.

        Raises:
            InvalidArgumentError: a file cannot be read, or is no PEM.
        """
        certificate, key, authorities = (getattr(self, name) for name in _TLS_FILES)
        return Tls.load(certificate, key, authorities) if certificate else None

    def peer_token(self) -> Token:
        """The token for `connect`, of the file as it is at each call; empty when there is none.

        Raises:
            FailedPreconditionError: the file cannot be read or is empty.
        """
        return TokenFile(self.token_file) if self.token_file else ""


S = TypeVar("S", bound=ServerSettings)


def load_settings(kind: type[S]) -> S:
    """Reads a service's settings from its environment variables.

    Raises:
        SystemExit: 2, with one line on stderr for each wrong variable.
    """
    try:
        return kind()
    except ValidationError as error:
        prefix = kind.model_config.get("env_prefix", "")
        for wrong in error.errors(include_url=False):
            if not wrong["loc"]:
                print(f"{prefix}…: {wrong['msg']}", file=sys.stderr)
                continue
            name = "_".join((prefix + str(wrong["loc"][0]), *map(str, wrong["loc"][1:]))).upper()
            print(f"{name}: got {wrong['input']!r}: {wrong['msg']}", file=sys.stderr)
        sys.exit(2)
