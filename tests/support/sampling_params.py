"""Test double of vLLM's sampling parameters, as far as a captured call needs them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any


@dataclass
class Params:
    """The neutral ones, but for what is given."""

    temperature: float = 1.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    top_k: int = 0
    logprobs: int | None = None
    output_kind: Any = field(default_factory=lambda: SimpleNamespace(name="DELTA"))
    structured_outputs: Any = None
    logit_bias: Any = None
    allowed_token_ids: Any = None
    bad_words: Any = None
    prompt_logprobs: int | None = None

    def clone(self) -> Params:
        """A copy."""
        return replace(self)
