"""Keys of rollouts on the OpenAI API: an agent's code gets one in place of the caller's token."""

from __future__ import annotations

import hashlib
import hmac
import uuid

PREFIX = "podium-rollout-"
"""A bearer key that begins so is a rollout's."""

_SEPARATOR = "."


def new_key() -> str:
    """A key that no other rollout has."""
    return f"{PREFIX}{uuid.uuid4().hex}"


def signed(key: str, token: str) -> str:
    """What to present for a rollout's key where the API asks for a token; empty for none.

    HMAC-SHA-256 of the key: who reads it calls as this rollout, and learns no token.
    """
    return f"{key}{_SEPARATOR}{_signature(key, token)}" if token else key


def verified(presented: str, token: str) -> str | None:
    """The rollout's key of what was presented; None for one that the token did not sign.

    Without a token no signature is asked for.
    """
    key, _, signature = presented.partition(_SEPARATOR)
    if token and not hmac.compare_digest(signature.encode(), _signature(key, token).encode()):
        return None
    return key


def _signature(key: str, token: str) -> str:
    return hmac.new(token.encode(), key.encode(), hashlib.sha256).hexdigest()
