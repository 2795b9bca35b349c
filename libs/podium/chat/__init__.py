"""Asking a model behind any OpenAI-compatible API for JSON: judges, and makers of scenarios."""

from podium.chat.config import CallLimits, Endpoint, Price, Sampling, Usage
from podium.chat.replies import Reply
from podium.chat.structured import (
    Observer,
    PromptTooLongError,
    RequestRefusedError,
    StructuredChat,
)

__all__ = [
    "CallLimits",
    "Endpoint",
    "Observer",
    "Price",
    "PromptTooLongError",
    "Reply",
    "RequestRefusedError",
    "Sampling",
    "StructuredChat",
    "Usage",
]
