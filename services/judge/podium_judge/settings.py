"""Settings of the judge, from the environment (`PODIUM_JUDGE_…`)."""

from __future__ import annotations

from pathlib import Path

from podium.core.contract.judging import is_judge_address
from podium.core.errors import FailedPreconditionError
from podium.core.secrets import of_header
from podium.kit.rpc import ServerSettings
from podium.kit.rpc.watched_files import TokenFile
from pydantic import Field, IPvAnyNetwork, NonNegativeFloat, SecretStr, field_validator
from pydantic_settings import SettingsConfigDict


class Settings(ServerSettings):
    """See the README of this service."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_JUDGE_")

    port: int = Field(default=50055, ge=0, le=65535)
    health_port: int = Field(default=50065, ge=0, le=65535)
    metrics_port: int = Field(default=50075, ge=0, le=65535)

    base_url: str = "http://127.0.0.1:50083/v1"
    """Default judge model's OpenAI-compatible API: Podium's own pool."""
    model: str = ""
    """Its model there; empty for the first that the API lists and no job trains."""
    key: SecretStr = SecretStr("")
    """Its API key; empty for none, or for that of `key_file`."""
    key_file: Path | None = None
    """Read for it at each question, where `key` is empty: the services' own token, which opens
    Podium's own pool."""
    trusted_base_urls: tuple[str, ...] = ()
    """Further addresses that keys may be sent to, as a JSON list."""

    tell_failures: bool = False
    """Whether jobs are told what any judge of theirs answered, and not only one at an address
    that is trusted: where users are the operators, as on a laptop."""
    allowed_networks: tuple[IPvAnyNetwork, ...] = ()
    """Networks of link-local and metadata addresses that judges may be at all the same, as a JSON
    list."""

    request_timeout_seconds: float = Field(default=120.0, gt=0)
    """Of one request to a judge model."""
    request_attempts: int = Field(default=4, ge=1, le=20)
    """Requests a question may take when the API is busy or unreachable."""
    backoff_seconds: float = Field(default=0.5, ge=0)
    """Wait before the second request; it doubles from then on."""
    max_backoff_seconds: float = Field(default=20.0, ge=0)
    """Longest wait between two requests."""
    temperature: float = Field(default=0.0, ge=0, le=2)
    """Sampling temperature of the judge model."""
    max_completion_tokens: int = Field(default=4096, ge=16)
    """Most tokens of an answer."""
    question_seconds: float = Field(default=300.0, gt=0)
    """Of one question to one judge, its retries and repairs included."""
    max_prompt_tokens: int = Field(default=65_536, ge=512)
    """Longest prompt, at 3 bytes a token; of longer attempts the middle is left out."""
    max_concurrent_calls: int = Field(default=32, ge=1)
    """Questions to judge models at once; more wait."""
    cache_entries: int = Field(default=4096, ge=0)
    """Answers that are kept for identical questions; 0 for none."""
    max_job_tokens: int = Field(default=0, ge=0)
    """Tokens that any job may have its judges read and write; 0 for no bound."""
    prices: dict[str, tuple[NonNegativeFloat, NonNegativeFloat]] = Field(default_factory=dict)
    """Price of a million tokens, read and written, by model name, as a JSON mapping."""

    def default_key(self) -> str:
        """What is shown where a job names no key.

        Raises:
            FailedPreconditionError: the file cannot be read or is empty, or the key is none.
        """
        try:
            key = of_header(self.key.get_secret_value())
        except ValueError as error:
            text = f"the judge service's own key {error}"
            raise FailedPreconditionError(text, reason="JUDGE_MISCONFIGURED") from None
        return key if key or self.key_file is None else TokenFile(self.key_file).current()

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        if not is_judge_address(url):
            raise ValueError(
                "allowed is http(s)://host[:port]/…/v1 without a user, a query or a fragment"
            )
        return url
