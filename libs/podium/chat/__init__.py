"""Asking models behind any OpenAI-compatible API: judges, makers of scenarios, players."""

from podium.chat.config import CallLimits, Endpoint, Price, Sampling, Usage
from podium.chat.guard import guard
from podium.chat.http_api import HttpApi, Observer
from podium.chat.keys import ApiKeys
from podium.chat.replies import Asked, Reply
from podium.chat.structured import (
    PromptTooLongError,
    RequestRefusedError,
    StructuredChat,
)
from podium.chat.transport import Transport

__all__ = [
    "ApiKeys",
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
    "Transport",
    "Usage",
    "guard",
]
