"""One judge model, in full."""

from __future__ import annotations

from dataclasses import dataclass, field

from podium.chat import CallLimits, Endpoint, Price, Sampling

__all__ = ["CallLimits", "Endpoint", "JudgeConfig", "Price", "Sampling"]


@dataclass(frozen=True)
class JudgeConfig:
    """One judge model, in full."""

    endpoint: Endpoint
    sampling: Sampling = field(default_factory=Sampling)
    price: Price | None = None
    """None when it is not known."""
    label: str = "other"
    """Its name in metrics, one of few."""
    trusted: bool = True
    """Whether what it answered is told in full: the operator named its address, or says so."""
