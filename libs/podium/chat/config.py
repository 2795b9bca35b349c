"""Where a model is served, how it is asked, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Endpoint:
    """Where a model is served."""

    base_url: str
    """Up to and including `/v1`."""
    model: str = ""
    """Empty for the first model that the API lists and that Podium does not train there."""
    key: str = field(default="", repr=False)
    """Bearer token; empty for none."""


@dataclass(frozen=True)
class CallLimits:
    """Bounds of one question to the model."""

    timeout_seconds: float = 120.0
    """Of one HTTP request."""
    attempts: int = 4
    """HTTP requests a question may take, the first included."""
    backoff_seconds: float = 0.5
    """Wait before the second request; doubles from then on."""
    max_backoff_seconds: float = 20.0
    """Longest wait, whatever the server's Retry-After says."""


@dataclass(frozen=True)
class Sampling:
    """How the model answers."""

    temperature: float = 0.0
    max_completion_tokens: int = 4096
    extra_body: str = "{}"
    """Further parameters of the request, as a JSON object."""


@dataclass(frozen=True)
class Price:
    """What a million tokens cost."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """The cost of these tokens."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6


@dataclass
class Usage:
    """What was asked and what it cost."""

    calls: int = 0
    """Calls of models."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    """Of those tokens, in the unit of the prices; what has no price is free."""

    @property
    def tokens(self) -> int:
        """Tokens read and written."""
        return self.prompt_tokens + self.completion_tokens
