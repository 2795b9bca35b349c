"""Asking a model behind any OpenAI-compatible API for JSON: judges, and makers of scenarios."""

from podium.chat.config import CallLimits, Endpoint, Price, Sampling, Usage
from podium.chat.http_api import HttpApi, Observer
from podium.chat.replies import Asked, Reply
from podium.chat.structured import (
    PromptTooLongError,
    RequestRefusedError,
    StructuredChat,
)

__all__ = [
    "Asked",
    "CallLimits",
    "Endpoint",
    "HttpApi",
    "Observer",
    "Price",
    "PromptTooLongError",
    "Reply",
    "RequestRefusedError",
    "Sampling",
    "StructuredChat",
    "Usage",
]
